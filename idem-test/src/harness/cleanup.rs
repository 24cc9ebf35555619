//! The clean-up at the end of a trial.

/// Runs when it is dropped: at the end of a test, and when the test panics.
#[derive(Default)]
pub struct Cleanup(Option<Box<dyn FnOnce() + Send + Sync>>);

impl Cleanup {
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn new(run: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(run)))
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run();
        }
    }
}

impl std::fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Cleanup").field(&self.0.is_some()).finish()
    }
}
