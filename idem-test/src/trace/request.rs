//! A request to another system.

use super::process::ProcessTrace;
use super::subject::Subject;

/// A request that was sent. When it is dropped, its end is written, which may have come at any time since it was sent.
#[derive(Debug)]
pub(crate) struct Request {
    process: Option<ProcessTrace>,
    of: Subject,
    values: String,
    since: u64,
    /// The step that its end is.
    end: &'static str,
}

impl Request {
    /// Writes this step now, in which the request is sent. `more`: further values of it. `end`: the step that its end is, unless
    /// it [ends as another one](Self::ends_as).
    pub(crate) async fn send(
        process: Option<ProcessTrace>,
        (step, of): (&'static str, Subject),
        (values, more): (String, &str),
        end: &'static str,
    ) -> Self {
        let mut since = 0;
        if let Some(process) = &process {
            process.alive().await;
            let sent = process.begin(step, of.clone(), format!("{values}{more}"));
            since = sent.began();
            sent.done();
        }
        Self { process, of, values, since, end }
    }

    /// Writes that its end is this step.
    pub(crate) fn ends_as(mut self, step: &'static str) {
        self.end = step;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Some(process) = &self.process {
            process.was(self.since, self.end, &self.of, &self.values);
        }
    }
}
