//! Groups of mutants that are compiled at once: few groups, and in each few mutants of one function, which could
//! disturb each other.

use std::ops::RangeInclusive;

use anyhow::{Context, Result, ensure};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{ImplItem, Item, TraitItem};

use super::mutant::Mutant;

/// How many groups there are, unless more mutants change one line. Each costs a run of the compiler. One function has
/// six mutants: two of them compile together more often than not, and a fifth and sixth group would have few others.
const GROUPS: usize = 4;

/// Lines of a file, from 1.
type Lines = RangeInclusive<usize>;
/// All lines of a file.
const FILE: Lines = 1..=usize::MAX;

/// Mutants that are compiled at once.
pub(crate) type Group<'a> = Vec<&'a Mutant>;

/// Divides the mutants into groups, each of which can be applied in its order. `read` returns the text of a file.
pub(crate) fn groups<'a>(mutants: &[&'a Mutant], read: impl Fn(&str) -> Result<String>) -> Result<Vec<Group<'a>>> {
    let mut sorted = mutants.to_vec();
    sorted.sort_by(|a, b| a.file.cmp(&b.file));
    let mut groups = Vec::<Group<'a>>::new();
    for of_file in sorted.chunk_by(|a, b| a.file == b.file) {
        let file = &of_file[0].file;
        let shares = shares(of_file, &read(file)?).with_context(|| format!("cannot group the mutants of {file}"))?;
        groups.resize_with(groups.len().max(shares.len()), Vec::new);
        groups.iter_mut().zip(shares).for_each(|(group, share)| group.extend(share.mutants));
    }
    groups.retain(|group| !group.is_empty());
    Ok(groups)
}

/// Divides the mutants of one file. Each goes to the share with the fewest mutants in the same function.
fn shares<'a>(mutants: &[&'a Mutant], text: &str) -> Result<Vec<Share<'a>>> {
    let items = Items::of(text)?;
    let mut shares: Vec<_> = (0..GROUPS).map(|_| Share::of(text)).collect();
    for &mutant in mutants {
        let changes: Vec<_> = mutant.lines(text).map(|lines| items.change(lines)).collect();
        let mut free: Vec<_> = shares.iter_mut().filter_map(|share| Some((share.beside(&changes)?, share))).collect();
        free.sort_by_key(|(beside, _)| *beside);
        if !free.into_iter().any(|(_, share)| share.add(mutant, &changes)) {
            let mut share = Share::of(text);
            ensure!(share.add(mutant, &changes), "mutant {} does not apply", mutant.name);
            shares.push(share);
        }
    }
    Ok(shares)
}

/// The mutants of one file that are in one group.
struct Share<'a> {
    mutants: Group<'a>,
    changes: Vec<Change>,
    /// The file with all of them.
    text: String,
}

impl<'a> Share<'a> {
    fn of(text: &str) -> Self {
        Self { mutants: Vec::new(), changes: Vec::new(), text: text.to_owned() }
    }

    /// Returns how many changes there are in the functions of these; `None` if one is on the same or an adjacent line.
    fn beside(&self, changes: &[Change]) -> Option<usize> {
        let pairs = || self.changes.iter().flat_map(move |ours| changes.iter().map(move |change| (ours, change)));
        let touches = pairs().any(|(ours, change)| meet(&ours.lines, &change.lines, 1));
        (!touches).then(|| pairs().filter(|(ours, change)| meet(&ours.item, &change.item, 0)).count())
    }

    /// Returns whether its texts still occur once behind the other changes; only then it is added.
    fn add(&mut self, mutant: &'a Mutant, changes: &[Change]) -> bool {
        let Ok(text) = mutant.applied_to(self.text.clone()) else { return false };
        self.text = text;
        self.changes.extend_from_slice(changes);
        self.mutants.push(mutant);
        true
    }
}

/// The place of a change in the text without any.
#[derive(Clone)]
struct Change {
    lines: Lines,
    /// The function or constant around it. Any other change, as of an import, may concern the whole file.
    item: Lines,
}

/// Returns whether these lines overlap, or are at most this far from each other.
fn meet(a: &Lines, b: &Lines, distance: usize) -> bool {
    *a.start() <= b.end().saturating_add(distance) && *b.start() <= a.end().saturating_add(distance)
}

/// The functions and constants of a file. Those inside a function are part of it.
#[derive(Default)]
struct Items(Vec<Lines>);

impl Items {
    fn of(text: &str) -> Result<Self> {
        let mut items = Self::default();
        items.visit_file(&syn::parse_file(text)?);
        Ok(items)
    }

    fn change(&self, lines: Option<Lines>) -> Change {
        let lines = lines.unwrap_or(FILE);
        let around = self.0.iter().find(|item| item.contains(lines.start()) && item.contains(lines.end()));
        Change { item: around.cloned().unwrap_or(FILE), lines }
    }

    fn add(&mut self, item: &impl Spanned) {
        let span = item.span();
        self.0.push(span.start().line..=span.end().line);
    }
}

impl<'a> Visit<'a> for Items {
    fn visit_item(&mut self, item: &'a Item) {
        match item {
            Item::Fn(_) | Item::Const(_) | Item::Static(_) => self.add(item),
            item => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'a ImplItem) {
        match item {
            ImplItem::Fn(_) | ImplItem::Const(_) => self.add(item),
            item => visit::visit_impl_item(self, item),
        }
    }

    fn visit_trait_item(&mut self, item: &'a TraitItem) {
        match item {
            TraitItem::Fn(_) | TraitItem::Const(_) => self.add(item),
            item => visit::visit_trait_item(self, item),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
use std::fmt;

fn a() {
    one();
    two();

    three();

    four();

    five();
}

impl A {
    fn b() {
        six();
    }
}
";

    /// Returns the groups of mutants of one file, each of which replaces one text and is named by it.
    fn grouped(changes: &[(&str, &str)]) -> Vec<String> {
        let mutant = |change: &(&str, &str)| Mutant::editing(change.0, "a.rs", &[*change]);
        let mutants: Vec<_> = changes.iter().map(mutant).collect();
        let groups = groups(&mutants.iter().collect::<Vec<_>>(), |_| Ok(TEXT.to_owned())).unwrap();
        let names = |group: &Group<'_>| group.iter().map(|mutant| mutant.name.as_str()).collect::<Vec<_>>().join(" ");
        groups.iter().map(names).collect()
    }

    #[test]
    fn mutants_of_several_functions_are_together_and_those_of_one_are_not() {
        assert_eq!(grouped(&[("one", "1"), ("six", "6"), ("three", "3")]), ["one six", "three"]);
    }

    #[test]
    fn mutants_of_one_function_are_together_if_there_are_more_than_groups_but_not_on_adjacent_lines() {
        let of_one = [("one", "1"), ("three", "3"), ("four", "4"), ("five", "5"), ("two", "2")];
        assert_eq!(grouped(&of_one), ["one", "three two", "four", "five"]);
        assert_eq!(grouped(&[("one", "1"); 5]), ["one"; 5]);
    }

    #[test]
    fn a_change_outside_of_functions_concerns_the_whole_file() {
        assert_eq!(grouped(&[("std::fmt", "std::fs"), ("one", "1"), ("six", "6")]), ["std::fmt", "one six"]);
        assert_eq!(grouped(&[("}\n\nimpl A", "}\n\nimpl B"), ("one", "1")]), ["}\n\nimpl A", "one"]);
    }

    #[test]
    fn a_mutant_does_not_follow_one_that_repeats_its_text() {
        assert_eq!(grouped(&[("one", "six"), ("six", "6")]), ["one", "six"]);
    }

    #[test]
    fn mutants_of_several_files_are_together() {
        let mutants = ["a.rs", "b.rs"].map(|file| Mutant::editing(file, file, &[("one", "1")]));
        let groups = groups(&mutants.iter().collect::<Vec<_>>(), |_| Ok(TEXT.to_owned())).unwrap();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2]);
    }
}
