//! Calls of the pipeline's methods. Its `impl` blocks are in many files, and a call of a method needs no import, so that
//! a cycle between files can go unseen.

use std::collections::{BTreeMap, BTreeSet};

/// The beginning of each block.
const BLOCK: &str = "impl<S: Store> Pipeline<S> {";

/// Returns the names of the methods that a file defines.
pub(crate) fn defined(code: &str) -> BTreeSet<String> {
    // The end of a block is the first brace at the beginning of a line.
    let blocks = code.split(BLOCK).skip(1).filter_map(|rest| rest.split("\n}").next());
    let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("    ") && !line.starts_with("     "));
    lines.filter_map(|line| line.split_once("fn ").map(|(_, rest)| name(rest).to_owned())).collect()
}

/// Returns the files whose methods a file calls. `homes` has the file of each method.
pub(crate) fn called<'a, Home>(code: &str, homes: &'a BTreeMap<String, Home>) -> Vec<&'a Home> {
    let code = without_space(code);
    // Elsewhere `self` is another type, with methods of the same names.
    let of_self = code.contains(&without_space(BLOCK)).then_some("self.");
    let receivers = [Some("pipeline."), of_self];
    let calls = receivers.into_iter().flatten().flat_map(|receiver| code.split(receiver).skip(1));
    calls.filter(|rest| rest[name(rest).len()..].starts_with('(')).filter_map(|rest| homes.get(name(rest))).collect()
}

fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// A call may continue on the next line.
fn without_space(code: &str) -> String {
    code.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "impl<S: Store> Pipeline<S> {\n    pub(crate) async fn a<A: Acker>(&self) {\n        let fn_b = 1;\n    \
        }\n\n    fn c(&self) {\n        self\n            .d().e();\n        self.f;\n        self.g(1);\n    }\n}\n\nfn h() {}\n";

    #[test]
    fn methods_are_those_of_the_blocks() {
        assert_eq!(defined(CODE).into_iter().collect::<Vec<_>>(), ["a", "c"]);
    }

    #[test]
    fn calls_lead_to_the_files_of_the_methods() {
        let homes: BTreeMap<_, _> = ["d", "e", "f", "g"].map(|name| (name.to_owned(), name)).into();
        assert_eq!(called(CODE, &homes), [&"d", &"g"]);
        assert_eq!(called("fn run(pipeline: P) { self.d(); pipeline.e() }", &homes), [&"e"]);
    }
}
