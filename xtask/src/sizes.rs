//! The sizes of the library's files and functions.
//!
//! Clippy's `too_many_lines` and `excessive_nesting` apply to tests as well, and count impl blocks and modules as nesting
//! but not the arms of a match.

use std::fs;

use anyhow::{Context, Result, bail};
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, ExprMatch, ImplItemFn, ItemFn, ItemMod, Signature, TraitItemFn};

use crate::cargo::{FOLDERS, root};
use crate::imports::collect;

/// The model is read as a description of the protocol, and so has the limits of the library.
const MODEL: &str = "tests/model";
/// The most lines of a file, with its tests.
const FILE: usize = 300;
/// The most lines of a function, from its first line to its closing brace.
const FUNCTION: usize = 60;
/// The most blocks inside each other in a function: an `if` in a function's body is one. Macros are not looked into.
const NESTING: usize = 4;

/// Checks each file. The error lists each file and function that is too large.
pub(crate) fn check() -> Result<()> {
    let mut wrong = Vec::new();
    for name in FOLDERS.into_iter().chain([MODEL]) {
        let mut files = Vec::new();
        collect(&root().join(name).join("src"), &mut files)?;
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
            let name = file.strip_prefix(root())?.display().to_string();
            let found = faults(&text).with_context(|| format!("cannot parse {name}"))?;
            wrong.extend(found.into_iter().map(|fault| format!("{name}: {fault}")));
        }
    }
    if !wrong.is_empty() {
        bail!(
            "a file has at most {FILE} lines, a function {FUNCTION} lines and {NESTING} nested blocks:\n{}",
            wrong.join("\n")
        );
    }
    Ok(())
}

/// Returns what is too large in the text of a file.
fn faults(text: &str) -> Result<Vec<String>> {
    let mut sizes = Sizes::default();
    sizes.visit_file(&syn::parse_file(text)?);
    let lines = text.lines().count();
    if lines > FILE {
        sizes.faults.push(format!("{lines} lines"));
    }
    Ok(sizes.faults)
}

/// Visits the functions of a file, without its tests.
#[derive(Default)]
struct Sizes {
    /// The blocks around the place of the visit, up to the innermost function.
    depth: usize,
    deepest: usize,
    faults: Vec<String>,
}

impl Sizes {
    fn function(&mut self, signature: &Signature, block: &Block) {
        let (depth, deepest) = (std::mem::take(&mut self.depth), std::mem::take(&mut self.deepest));
        visit::visit_block(self, block);
        let lines = last_line(block.span()) - signature.span().start().line + 1;
        if lines > FUNCTION {
            self.faults.push(format!("{} has {lines} lines", signature.ident));
        }
        if self.deepest > NESTING {
            self.faults.push(format!("{} has {} nested blocks", signature.ident, self.deepest));
        }
        (self.depth, self.deepest) = (depth, deepest);
    }

    fn deeper(&mut self, visit: impl FnOnce(&mut Self)) {
        self.depth += 1;
        self.deepest = self.deepest.max(self.depth);
        visit(self);
        self.depth -= 1;
    }
}

impl<'a> Visit<'a> for Sizes {
    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'a ItemFn) {
        if !function.attrs.iter().any(is_test) {
            self.function(&function.sig, &function.block);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a ImplItemFn) {
        self.function(&function.sig, &function.block);
    }

    fn visit_trait_item_fn(&mut self, function: &'a TraitItemFn) {
        if let Some(block) = &function.default {
            self.function(&function.sig, block);
        }
    }

    fn visit_block(&mut self, block: &'a Block) {
        self.deeper(|sizes| visit::visit_block(sizes, block));
    }

    fn visit_expr_match(&mut self, expression: &'a ExprMatch) {
        self.visit_expr(&expression.expr);
        self.deeper(|sizes| expression.arms.iter().for_each(|arm| sizes.visit_arm(arm)));
    }
}

/// Returns whether the attribute is `#[test]`, `#[tokio::test]` or `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    let path = attribute.path();
    let cfg = path.is_ident("cfg") && attribute.parse_args::<syn::Path>().is_ok_and(|cfg| cfg.is_ident("test"));
    cfg || path.segments.last().is_some_and(|last| last.ident == "test")
}

fn last_line(span: Span) -> usize {
    span.end().line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_or_file_that_is_too_long_is_found() {
        let function = |lines: usize| format!("fn long() {{\n{}}}\n", "    call();\n".repeat(lines - 2));
        assert_eq!(faults(&function(60)).unwrap(), Vec::<String>::new());
        assert_eq!(faults(&function(61)).unwrap(), ["long has 61 lines"]);
        assert_eq!(faults(&"// A line.\n".repeat(300)).unwrap(), Vec::<String>::new());
        assert_eq!(faults(&"// A line.\n".repeat(301)).unwrap(), ["301 lines"]);
    }

    #[test]
    fn blocks_and_arms_of_a_match_count_as_nesting() {
        let four = "impl A { async fn deep(&self) { loop { match a { _ => { if b { c() } } } } } }";
        assert_eq!(faults(four).unwrap(), Vec::<String>::new());
        let five = four.replace("c()", "let d = || { c() };");
        assert_eq!(faults(&five).unwrap(), ["deep has 5 nested blocks"]);
        let chain =
            "fn chain() { if a { b() } else if c { d() } else if e { f() } else if g { h() } else if i { j() } }";
        assert_eq!(faults(chain).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_function_in_a_function_has_its_own_nesting() {
        let inner = "fn outer() { loop { if a { fn inner() { loop { if b { loop { if c { d() } } } } } } } }";
        assert_eq!(faults(inner).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn tests_are_exempt_except_for_the_length_of_their_file() {
        let deep = "fn deep() { if a { if a { if a { if a { if a { b() } } } } } }";
        assert_eq!(faults(&format!("#[cfg(test)] mod tests {{ {deep} }}")).unwrap(), Vec::<String>::new());
        assert_eq!(faults(&format!("#[tokio::test] async {deep}")).unwrap(), Vec::<String>::new());
        assert_eq!(faults(deep).unwrap(), ["deep has 5 nested blocks"]);
    }

    #[test]
    fn the_library_keeps_to_its_limits() {
        check().unwrap();
    }
}
