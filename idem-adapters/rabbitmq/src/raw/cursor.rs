//! Reading AMQP values from the front of a byte slice. Short strings are bytes here, as in RabbitMQ.

/// The bytes left to read. Each read returns `None` if too few bytes are left.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string of at most 255 bytes.
    pub(super) fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A short string as text.
    pub(super) fn text(&mut self) -> Option<String> {
        self.short().map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// A code and a text, as the server gives a reason.
    pub(super) fn reason(&mut self) -> Option<String> {
        Some(format!("{} {}", self.u16()?, self.text()?))
    }
}
