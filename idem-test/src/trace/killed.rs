//! Traces of processes that were killed.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::book::Trace;

impl Trace {
    /// The records in the files of processes, some of which were killed. Adds that those ended: behind the last step that they
    /// wrote. A last record that was cut off is left out: its step had not begun, or has no answer.
    pub fn killed(files: &[String]) -> String {
        let mut text: String = files.iter().map(|file| whole(file)).collect();
        let ends = ends(&text);
        text.push_str(&ends);
        text
    }
}

/// The ends of the processes that did not write them.
fn ends(text: &str) -> String {
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
    let mut ends = String::new();
    for (process, time) in last.into_iter().filter(|(process, _)| !ended.contains(process)) {
        // Writing to a string cannot fail.
        let _ = writeln!(ends, ">\t{process}.end\t{}\t{process}\tdied\t\t\t", time + 1);
    }
    ends
}

/// The whole records of a file. The kernel may cut a write off, between two pages, if its process is killed.
fn whole(file: &str) -> &str {
    file.rfind('\n').map_or("", |end| &file[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_was_cut_off_is_left_out_and_the_process_has_ended() {
        let begun = ">\t1.1\t5\t1.p1\tclaimed\tm\t\tk\n<\t1.1\t6\n";
        let died = ">\t2.1\t7\t2.p1\tdied\t\t\t\n";
        let files = [format!("{begun}>\t1.2\t9\t1.p"), died.to_owned()];
        assert_eq!(Trace::killed(&files), format!("{begun}{died}>\t1.p1.end\t7\t1.p1\tdied\t\t\t\n"));
    }
}
