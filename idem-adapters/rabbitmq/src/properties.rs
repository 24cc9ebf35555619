//! The property list of a message as raw bytes, for messages that lapin cannot parse.

use crate::bare::Cursor;

/// The contents of a property list, as far as it can be parsed.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Properties<'a> {
    pub(crate) message_id: Option<&'a [u8]>,
    pub(crate) kind: Option<&'a [u8]>,
    /// Names and values. Each value is preceded by its type.
    pub(crate) headers: Vec<(&'a [u8], &'a [u8])>,
    /// The other properties that should be text, by name.
    pub(crate) others: Vec<(&'static str, &'a [u8])>,
}

/// The properties in wire order, from the highest flag down.
const FIELDS: [(&str, Type); 14] = [
    (CONTENT_TYPE, Type::Short),
    ("content encoding", Type::Short),
    (HEADERS, Type::Table),
    ("delivery mode", Type::Bytes(1)),
    ("priority", Type::Bytes(1)),
    (CORRELATION_ID, Type::Short),
    (REPLY_TO, Type::Short),
    ("expiration", Type::Short),
    (MESSAGE_ID, Type::Short),
    ("timestamp", Type::Bytes(8)),
    (TYPE, Type::Short),
    ("user id", Type::Short),
    ("application id", Type::Short),
    ("cluster id", Type::Short),
];

const HEADERS: &str = "headers";
pub(crate) const CONTENT_TYPE: &str = "content type";
pub(crate) const CORRELATION_ID: &str = "correlation id";
pub(crate) const REPLY_TO: &str = "reply-to";
pub(crate) const MESSAGE_ID: &str = "message id";
pub(crate) const TYPE: &str = "type";

#[derive(Clone, Copy)]
enum Type {
    Short,
    Table,
    Bytes(usize),
}

impl<'a> Properties<'a> {
    /// Parses a list. The error contains what was parsed before the first invalid part.
    pub(crate) fn read(list: &'a [u8]) -> Result<Self, Self> {
        let mut read = Self::default();
        match read.fill(Cursor(list)) {
            Some(()) => Ok(read),
            None => Err(read),
        }
    }

    fn fill(&mut self, mut list: Cursor<'a>) -> Option<()> {
        let flags = list.u16()?;
        for (at, (name, of)) in FIELDS.into_iter().enumerate() {
            if flags & (1 << (15 - at)) == 0 {
                continue;
            }
            match of {
                Type::Bytes(length) => drop(list.take(length)?),
                Type::Table => self.table(Cursor(list.long()?))?,
                Type::Short => self.short(name, list.short()?),
            }
        }
        list.0.is_empty().then_some(())
    }

    fn short(&mut self, name: &'static str, value: &'a [u8]) {
        match name {
            MESSAGE_ID => self.message_id = Some(value),
            TYPE => self.kind = Some(value),
            _ => self.others.push((name, value)),
        }
    }

    fn table(&mut self, mut table: Cursor<'a>) -> Option<()> {
        while !table.0.is_empty() {
            let name = table.short()?;
            let begin = table.0;
            skip(&mut table)?;
            self.headers.push((name, &begin[..begin.len() - table.0.len()]));
        }
        Some(())
    }
}

/// Skips a value and its type.
fn skip(values: &mut Cursor<'_>) -> Option<()> {
    let length = match values.u8()? {
        b'V' => 0,
        b't' | b'b' | b'B' => 1,
        b's' | b'u' | b'U' => 2,
        b'I' | b'i' | b'f' => 4,
        b'D' => 5,
        b'l' | b'L' | b'd' | b'T' => 8,
        b'S' | b'A' | b'F' | b'x' => return values.long().map(drop),
        _ => return None,
    };
    values.take(length).map(drop)
}

pub(crate) fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_whatever_its_strings_are() {
        let headers =
            [&[2, b'n', 0xFF, b'I', 0, 0, 0, 7][..], &[1, b's', b'S', 0, 0, 0, 1, 0xFE], &[1, b'v', b'V']].concat();
        let list = [
            &[0b1111_1111, 0b1111_1100, 1, 0xF0, 1, b'e', 0, 0, 0, headers.len() as u8][..],
            &headers,
            &[2, 5, 1, b'c', 1, b'r', 1, b'x', 2, b'm', 0xF1],
            &1_u64.to_be_bytes(),
            &[1, b't', 1, b'u', 1, b'a', 1, 0xF2],
        ]
        .concat();
        let read = Properties::read(&list).unwrap();
        assert_eq!((read.message_id, read.kind), (Some(&b"m\xF1"[..]), Some(&b"t"[..])));
        let others: [(&str, &[u8]); 8] = [
            (CONTENT_TYPE, &[0xF0]),
            ("content encoding", b"e"),
            (CORRELATION_ID, b"c"),
            (REPLY_TO, b"r"),
            ("expiration", b"x"),
            ("user id", b"u"),
            ("application id", b"a"),
            ("cluster id", &[0xF2]),
        ];
        assert_eq!(read.others, others);
        let values: [(&[u8], &[u8]); 3] =
            [(b"n\xFF", &[b'I', 0, 0, 0, 7]), (b"s", &[b'S', 0, 0, 0, 1, 0xFE]), (b"v", b"V")];
        assert_eq!(read.headers, values);
    }

    #[test]
    fn a_malformed_list_is_read_up_to_its_first_invalid_part() {
        let whole = [0b0010_0000, 0x80, 0, 0, 0, 7, 1, b'a', b'V', 1, b'b', b'?', 0, 1, b'm'];
        let read = Properties::read(&whole).unwrap_err();
        assert_eq!((read.headers, read.message_id), (vec![(&b"a"[..], &b"V"[..])], None));
        for cut in 0..whole.len() {
            assert!(Properties::read(&whole[..cut]).is_err());
        }
        assert!(Properties::read(&[0, 0, 1]).is_err(), "there is something behind it");
    }
}
