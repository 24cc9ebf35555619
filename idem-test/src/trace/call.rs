//! The steps of an external call.

use idem_core::{BoxError, Extract, Extraction, OutboundKey, Param};

use super::process::{ProcessTrace, Step};
use super::subject::Subject;

/// The process that makes a call, its message and its key, among the parameters of the call. Outside of a traced process, it
/// writes nothing.
#[derive(Debug)]
pub struct CallOf {
    process: Option<ProcessTrace>,
    of: Subject,
    key: OutboundKey,
}

impl Param for CallOf {}

impl<S> Extract<S> for CallOf {
    fn extract(from: &Extraction<'_, S>) -> Result<Self, BoxError> {
        let key = <OutboundKey as Extract<S>>::extract(from)?;
        Ok(Self { process: ProcessTrace::here(), of: Subject::of_key(from.key), key })
    }
}

impl CallOf {
    /// Writes that the request is sent now. `keyed`: the provider knows keys; `asks`: it can be asked what became of a call.
    pub(crate) async fn sends(self, keyed: bool, asks: bool) -> Sent {
        let Self { process, of, key } = self;
        let values = format!("key={key}");
        let mut since = 0;
        if let Some(process) = &process {
            process.alive().await;
            let sent = process.begin("sent", of.clone(), format!("{values} keyed={} asks={}", yes(keyed), yes(asks)));
            since = sent.began();
            sent.done();
        }
        Sent { process, of, values, since, is_answered: false }
    }

    /// Writes that the provider is asked now.
    pub(crate) async fn asks(self) -> Asked {
        let Self { process, of, key } = self;
        let Some(process) = process else { return Asked(None) };
        process.alive().await;
        let values = format!("key={key}");
        let step = process.begin("asked", of.clone(), values.clone());
        Asked(Some((step, of, values)))
    }
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// A request that was sent. If it is dropped, the call has failed, or was given up.
#[derive(Debug)]
pub(crate) struct Sent {
    process: Option<ProcessTrace>,
    of: Subject,
    values: String,
    since: u64,
    is_answered: bool,
}

impl Sent {
    /// Writes that the call has returned an answer.
    pub(crate) fn answered(mut self) {
        self.is_answered = true;
    }
}

/// The request has arrived, or was lost, at some time since it was sent.
impl Drop for Sent {
    fn drop(&mut self) {
        let step = if self.is_answered { "answered" } else { "call-failed" };
        if let Some(process) = &self.process {
            process.was(self.since, step, &self.of, &self.values);
        }
    }
}

/// A question what became of a call. If it is dropped, it has no reply.
#[derive(Debug)]
pub(crate) struct Asked(Option<(Step, Subject, String)>);

impl Asked {
    /// Writes the reply.
    pub(crate) fn replied(self, reply: &'static str) {
        let Some((step, of, values)) = self.0 else { return };
        step.also("asked", of, format!("{values} reply={reply}"));
        step.nothing();
    }
}
