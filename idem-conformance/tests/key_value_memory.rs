//! The suite for key-value stores over the one in memory.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::time::Duration;

use idem_conformance::key_value::World;
use idem_core::HasConnection;
use idem_core::key_value::{Completed, KeyValue, Lent, Memory};

/// What a handler writes.
#[derive(Clone, Debug, Default)]
struct Writes(Vec<Write>);

#[derive(Clone, Debug, PartialEq)]
enum Write {
    Count(String),
    Refused,
    Fails,
}

struct InMemory(Memory<Writes>);

/// Answers as Redis would, and applies what stands before a failure.
fn answer(applied: &std::sync::Mutex<Vec<Writes>>, writes: &Writes) -> Completed {
    if writes.0.contains(&Write::Refused) {
        return Completed::Refused("a wrong type".to_owned());
    }
    if writes.0.contains(&Write::Fails) {
        applied.lock().unwrap().push(writes.clone());
        return Completed::HalfApplied("no number".to_owned());
    }
    Completed::Yes
}

static HALF: std::sync::Mutex<Vec<Writes>> = std::sync::Mutex::new(Vec::new());

impl World for InMemory {
    type Writes = Writes;
    type Store = Memory<Writes>;
    type Engine = KeyValue<Memory<Writes>>;

    async fn make() -> Option<Self> {
        Some(Self(Memory::new().completing(|writes| answer(&HALF, writes))))
    }

    fn store(&self) -> Memory<Writes> {
        self.0.clone()
    }

    fn engine(&self, retention: Duration) -> Self::Engine {
        KeyValue::new(self.0.clone()).retention(retention)
    }

    fn count(writes: &mut Writes, counter: &str) {
        writes.0.push(Write::Count(counter.to_owned()));
    }

    fn refuse(writes: &mut Writes, _: &str) {
        writes.0.push(Write::Refused);
    }

    fn fail(writes: &mut Writes, _: &str) {
        writes.0.push(Write::Fails);
    }

    async fn counted(&self, counter: &str) -> i64 {
        let mut applied = self.0.applied();
        applied.extend(HALF.lock().unwrap().iter().cloned());
        let writes = applied.iter().flat_map(|writes| &writes.0);
        writes.filter(|write| matches!(write, Write::Count(name) if name == counter)).count() as i64
    }
}

impl HasConnection<Writes> for KeyValue<Memory<Writes>> {
    fn connection(lent: &mut Lent<Writes>) -> &mut Writes {
        lent.writes_mut()
    }
}

idem_conformance::kv_suite!(InMemory);

#[tokio::test(start_paused = true)]
async fn a_long_delay_is_cut_while_its_delivery_is_held() {
    let world = InMemory::make().await.unwrap();
    idem_conformance::key_value::a_long_delay_is_cut_while_its_delivery_is_held(world).await;
}
