//! Connections that are set aside.

/// Connections set aside for one worker; given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    taken: std::sync::Arc<std::sync::atomic::AtomicUsize>,
    connections: usize,
}

impl Reservation {
    /// Sets `connections` of `capacity` aside, of which `taken` counts those that are spoken for.
    /// `None` where there are not that many left; then nothing is set aside.
    pub fn of(
        taken: &std::sync::Arc<std::sync::atomic::AtomicUsize>,
        capacity: usize,
        connections: usize,
    ) -> Option<Self> {
        use std::sync::atomic::Ordering::SeqCst;
        let more = |n: usize| n.checked_add(connections).filter(|sum| *sum <= capacity);
        taken.fetch_update(SeqCst, SeqCst, more).ok()?;
        Some(Self { taken: taken.clone(), connections })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.taken.fetch_sub(self.connections, std::sync::atomic::Ordering::SeqCst);
    }
}
