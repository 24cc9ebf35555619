//! How many messages may be here, and how many of one key.

/// How many messages may be here before nothing more is read, those included that wait behind another one of their key: so
/// many for each that may be published at a time, and at least so many.
const EACH: usize = 20;
const AT_LEAST: usize = 1000;

/// How many messages of one key are kept at most behind the one that is under way. More of them would take the room of all
/// other keys: they are published one after the other, and the first one may get no answer for long.
pub(super) const MANY: usize = 100;

/// How many of them are kept if what waits behind others, of all keys, takes half of the room.
const FEW: usize = 5;

/// With so many bytes of payloads and headers here, of all keys, few messages of each key are kept; and one of a key of which
/// those that wait have so many bytes.
const LARGE: usize = 32 * 1024 * 1024;
const OWN: usize = 1024 * 1024;

/// The room for messages that are set aside because their destination hangs, as a multiple of the room for others. Those with
/// a key, one of each key, have only as much room as others.
const ASIDE: usize = 5;
/// The limit of the bytes of their payloads and headers.
pub(super) const ASIDE_BYTES: usize = 32 * 1024 * 1024;

/// How many messages may be here.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room(pub(super) usize);

impl Default for Room {
    fn default() -> Self {
        Self(AT_LEAST)
    }
}

impl Room {
    /// Returns the room of a relay that publishes so many messages at a time.
    pub(super) fn new(concurrency: usize) -> Self {
        Self(concurrency.saturating_mul(EACH).max(AT_LEAST))
    }

    /// Returns how many messages may be set aside.
    pub(super) fn aside(self) -> usize {
        self.0.saturating_mul(ASIDE)
    }
}

/// The messages that are here, of all keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Here {
    pub(super) room: Room,
    /// How many messages wait behind another one of their key.
    pub(super) behind: usize,
    /// The bytes of all of them.
    pub(super) bytes: usize,
}

impl Here {
    /// Returns how many messages of one key may be kept behind the one that is under way. `own` returns the bytes of those
    /// that are.
    pub(super) fn most(self, own: impl FnOnce() -> usize) -> usize {
        if self.bytes > LARGE && own() > OWN {
            1
        } else if self.bytes > LARGE || self.behind > self.room.0 / 2 {
            FEW
        } else {
            MANY
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_is_here_the_fewer_messages_of_one_key_are_kept() {
        let most = |behind, bytes, own| Here { room: Room::new(50), behind, bytes }.most(|| own);
        assert_eq!((most(500, LARGE, LARGE), most(501, LARGE, LARGE)), (MANY, FEW));
        assert_eq!((most(0, LARGE + 1, OWN), most(0, LARGE + 1, OWN + 1)), (FEW, 1));
        assert_eq!((Room::new(1).0, Room::new(500).0), (1000, 10_000));
        assert_eq!((Room::new(1).aside(), Room::new(500).aside()), (5000, 50_000));
    }
}
