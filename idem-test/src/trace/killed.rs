//! Traces of processes that were killed.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::book::Trace;

impl Trace {
    /// Adds to the records of processes that were killed that they ended: behind the last step that they wrote.
    pub fn killed(text: &str) -> String {
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut process_of, mut ended) = (BTreeMap::new(), Vec::new());
        for record in text.lines() {
            let parts: Vec<&str> = record.split('\t').collect();
            let [kind, number, time, ..] = parts[..] else { continue };
            if let (">", Some(process)) = (kind, parts.get(3)) {
                process_of.insert(number, *process);
            }
            let Some(process) = process_of.get(number).copied() else { continue };
            let time: u64 = time.parse().unwrap_or_default();
            last.entry(process).and_modify(|last| *last = time.max(*last)).or_insert(time);
            if parts.get(4) == Some(&"died") {
                ended.push(process);
            }
        }
        let mut whole = text.to_owned();
        for (process, time) in last.into_iter().filter(|(process, _)| !ended.contains(process)) {
            // Writing to a string cannot fail.
            let _ = writeln!(whole, ">\t{process}.end\t{}\t{process}\tdied\t\t\t", time + 1);
        }
        whole
    }
}
