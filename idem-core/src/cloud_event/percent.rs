//! Percent-encoding.

/// Replaces each `%` and two hexadecimal digits by the byte that they encode. A `%` without two digits is kept.
pub(super) fn decoded(mut bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    while let Some((first, rest)) = bytes.split_first() {
        bytes = rest;
        match (first, rest) {
            (b'%', [high, low, behind @ ..]) if let (Some(high), Some(low)) = (digit(*high), digit(*low)) => {
                decoded.push(high * 16 + low);
                bytes = behind;
            }
            _ => decoded.push(*first),
        }
    }
    decoded
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}
