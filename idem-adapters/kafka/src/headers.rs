//! Reads the headers of a record as raw bytes.
#![expect(unsafe_code, reason = "rdkafka panics at a name that is not UTF-8, and has no other way to read one")]

use std::ffi::CStr;
use std::fmt::Write as _;
use std::{ptr, slice};

use bytes::Bytes;
use idem_core::Headers;
use rdkafka::bindings::{rd_kafka_header_get_all, rd_kafka_message_headers};
use rdkafka::message::BorrowedMessage;
use rdkafka::types::RDKafkaRespErr;

/// Returns the headers, and a description of the names that cannot be represented. Such a name is converted lossily;
/// the description contains its bytes.
pub(crate) fn headers(record: &BorrowedMessage<'_>) -> (Headers, Option<String>) {
    match raw(record) {
        Ok(raw) => named(raw),
        Err(code) => (Headers::new(), Some(format!("librdkafka cannot read its headers: {code:?}"))),
    }
}

/// The name and value of each header.
type Raw<'a> = Vec<(&'a [u8], &'a [u8])>;

fn raw<'a>(record: &'a BorrowedMessage<'_>) -> Result<Raw<'a>, RDKafkaRespErr> {
    let mut list = ptr::null_mut();
    // SAFETY: the message lives as long as `record`, and `list` is written before it is read. The list belongs to the
    // message, which is not changed while it is borrowed.
    match unsafe { rd_kafka_message_headers(record.ptr(), &mut list) } {
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => {}
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__NOENT => return Ok(Vec::new()),
        code => return Err(code),
    }
    let mut headers = Vec::new();
    loop {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: `list` belongs to the message above. librdkafka returns an error for an index beyond the last header.
        let found = unsafe { rd_kafka_header_get_all(list, headers.len(), &mut name, &mut value, &mut size) };
        if found != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR || name.is_null() {
            return Ok(headers);
        }
        // SAFETY: librdkafka terminates a name with NUL, and the name lives as long as the message.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let value = match value.is_null() {
            true => &[][..],
            // SAFETY: the value has this many bytes and lives as long as the message.
            false => unsafe { slice::from_raw_parts(value.cast::<u8>(), size) },
        };
        headers.push((name, value));
    }
}

fn named(raw: Raw<'_>) -> (Headers, Option<String>) {
    let (mut headers, mut unrepresentable) = (Headers::new(), String::new());
    for (at, (name, value)) in raw.into_iter().enumerate() {
        let text = String::from_utf8_lossy(name);
        if text.as_bytes() != name {
            let bytes = hex::encode(name);
            let _ = write!(unrepresentable, "the name of header {at} is not UTF-8: its bytes are {bytes}. ");
        }
        headers.push(text.into_owned(), Bytes::copy_from_slice(value));
    }
    let unrepresentable = unrepresentable.trim_end().to_owned();
    (headers, (!unrepresentable.is_empty()).then_some(unrepresentable))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_text_is_shown_by_its_bytes() {
        let (headers, unrepresentable) = named(vec![(b"a", b"1"), (&[0xfe, b'o'], &[0xff])]);
        let expected: [(&str, &[u8]); 2] = [("a", b"1"), ("\u{fffd}o", &[0xff])];
        assert_eq!(headers.iter().collect::<Vec<_>>(), expected);
        assert_eq!(unrepresentable.as_deref(), Some("the name of header 1 is not UTF-8: its bytes are fe6f."));
        assert_eq!(named(vec![("\u{e9}".as_bytes(), b"")]).1, None);
    }
}
