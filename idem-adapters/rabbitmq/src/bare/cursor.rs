//! Reading AMQP values from the front of a byte slice. Short strings are bytes here, as in RabbitMQ.

/// The bytes left to read. Each read returns `None` if too few bytes are left.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string of at most 255 bytes.
    pub(crate) fn short(&mut self) -> Option<&'a [u8]> {
        let length = self.u8()?;
        self.take(length.into())
    }

    /// A value preceded by its length in four bytes: long strings, tables and arrays.
    pub(crate) fn long(&mut self) -> Option<&'a [u8]> {
        let length = self.array().map(u32::from_be_bytes)?;
        self.take(usize::try_from(length).ok()?)
    }
}
