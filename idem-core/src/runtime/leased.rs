//! Ackers that know when their lease has to be extended.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Acker, BoxError, Settled};

/// The acker of a delivery on its way through the worker. [`extend`](Acker::extend) does nothing until a third of the
/// lease has elapsed since the last extension. So each wait extends when it begins and every third of the lease after
/// that: any number of short waits, one after another, keeps the lease like a long one.
pub(crate) struct LeasedAcker<A> {
    acker: A,
    /// When the lease began. `None` if there is none.
    since: Option<Instant>,
}

impl<A: Acker> LeasedAcker<A> {
    /// Wraps the acker of a delivery that was received just now.
    pub(crate) fn new(acker: A) -> Self {
        let since = acker.lease().map(|_| Instant::now());
        Self { acker, since }
    }
}

impl<A: Acker> Acker for LeasedAcker<A> {
    async fn ack(self) -> Result<Settled, BoxError> {
        self.acker.ack().await
    }

    fn stored(&mut self) {
        self.acker.stored();
    }

    async fn release(self) -> Result<Settled, BoxError> {
        self.acker.release().await
    }

    fn lease(&self) -> Option<Duration> {
        self.acker.lease()
    }

    /// An extension that was dropped or has failed is due again at once.
    async fn extend(&mut self) -> Result<(), BoxError> {
        let (Some(lease), Some(since)) = (self.acker.lease(), self.since) else { return Ok(()) };
        if since.elapsed() < lease / 3 {
            return Ok(());
        }
        let now = Instant::now();
        self.acker.extend().await?;
        self.since = Some(now);
        Ok(())
    }

    fn is_live(&self) -> bool {
        self.acker.is_live()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::extend::{extended, kept};
    use super::*;

    /// Records when its lease of 30 seconds was extended.
    struct Leased(Arc<Mutex<Vec<u64>>>, Instant);

    impl Acker for Leased {
        async fn ack(self) -> Result<Settled, BoxError> {
            Ok(Settled::Sent)
        }

        async fn release(self) -> Result<Settled, BoxError> {
            Ok(Settled::Sent)
        }

        fn lease(&self) -> Option<Duration> {
            Some(Duration::from_secs(30))
        }

        async fn extend(&mut self) -> Result<(), BoxError> {
            self.0.lock().unwrap().push(self.1.elapsed().as_secs());
            Ok(())
        }
    }

    /// Returns the seconds at which the lease is extended while these waits follow one another.
    async fn extensions(waits: impl AsyncFnOnce(&mut LeasedAcker<Leased>)) -> Vec<u64> {
        let times: Arc<Mutex<Vec<u64>>> = Arc::default();
        let mut acker = LeasedAcker::new(Leased(Arc::clone(&times), Instant::now()));
        waits(&mut acker).await;
        std::mem::take(&mut *times.lock().unwrap())
    }

    async fn wait(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_extends_every_third_of_the_lease() {
        assert_eq!(extensions(async |acker| extended(&mut [acker], wait(35)).await).await, [10, 20, 30]);
        let kept = async |acker: &mut LeasedAcker<Leased>| {
            let _ = tokio::time::timeout(Duration::from_secs(35), kept(acker, Duration::from_secs(3))).await;
        };
        assert_eq!(extensions(kept).await, [12, 24], "it looks every three seconds");
    }

    /// Works for so many seconds and never waits: each turn ends because its task has used up what tokio allows it.
    async fn spin(seconds: u64) {
        let (_, mut closed) = tokio::sync::mpsc::channel::<()>(1);
        for _ in 0..seconds * 20 {
            while tokio::task::coop::has_budget_remaining() {
                closed.recv().await;
            }
            tokio::time::advance(Duration::from_millis(50)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_never_waits_keeps_its_lease() {
        assert_eq!(extensions(async |acker| extended(&mut [acker], spin(35)).await).await, [10, 20, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_keeps_its_lease_beside_a_preparation_that_never_waits() {
        let kept = async |acker: &mut LeasedAcker<Leased>| {
            tokio::select! {
                biased;
                () = spin(35) => {}
                () = kept(acker, Duration::from_secs(3)) => {}
            }
        };
        assert_eq!(extensions(kept).await, [12, 24], "it looks every three seconds");
    }

    #[tokio::test(start_paused = true)]
    async fn short_waits_extend_no_less_often() {
        let short = async |acker: &mut LeasedAcker<Leased>| {
            for _ in 0..18 {
                extended(&mut [&mut *acker], wait(2)).await;
            }
        };
        assert_eq!(extensions(short).await, [10, 20, 30]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_behind_one_that_did_not_extend_begins_with_an_extension() {
        let behind = async |acker: &mut LeasedAcker<Leased>| {
            wait(15).await;
            extended(&mut [acker], wait(1)).await;
        };
        assert_eq!(extensions(behind).await, [15]);
    }
}
