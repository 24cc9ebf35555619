//! Import cycles between the files of a crate: no file may import, directly or indirectly, from a file that imports
//! from it. A call of the pipeline's methods counts as an import, too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::{FOLDERS, root};
use crate::imports::{absolute, collect, shown, without_comments};
use crate::methods;

/// The folders of the other crates that must have no import cycles.
const UNPUBLISHED: [&str; 7] =
    ["benches", "tests/faults", "tests/model", "xtask", "xtask/brokers", "xtask/demo", "xtask/services"];

/// A module by its path within the crate, for example `["bare", "consumer"]`. Each module is one file; the crate's root
/// is not a module.
type Module = Vec<String>;

/// Checks each crate. The error lists each import within a cycle.
pub(crate) fn check() -> Result<()> {
    let mut wrong = Vec::new();
    for name in FOLDERS.into_iter().chain(UNPUBLISHED) {
        let circles = Files::read(&root().join(name).join("src"))?.circles();
        wrong.extend(circles.into_iter().map(|import| format!("{name}: {import}")));
    }
    if !wrong.is_empty() {
        bail!("files import from each other: move what they share to a file below both\n{}", wrong.join("\n"));
    }
    Ok(())
}

/// The files of one crate, without comments and tests.
struct Files {
    root: String,
    modules: BTreeMap<Module, String>,
}

impl Files {
    fn read(src: &Path) -> Result<Self> {
        let (mut paths, mut files) = (Vec::new(), Self { root: String::new(), modules: BTreeMap::new() });
        collect(src, &mut paths)?;
        for path in paths {
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let inside = path.strip_prefix(src)?.with_extension("");
            files.add(&inside.iter().map(|part| part.to_string_lossy().into_owned()).collect::<Vec<_>>(), &text);
        }
        Ok(files)
    }

    fn add(&mut self, path: &[String], text: &str) {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
        let code = without_comments(text);
        match path {
            [name] if name == "lib" || name == "main" => self.root = code,
            [.., name] if name == "tests" => {}
            [module @ .., name] if name == "mod" => drop(self.modules.insert(module.to_vec(), code)),
            module => drop(self.modules.insert(module.to_vec(), code)),
        }
    }

    /// Returns each import that is part of a cycle.
    fn circles(&self) -> Vec<String> {
        let methods = self.methods();
        let imports: BTreeMap<&Module, BTreeSet<Module>> =
            self.modules.keys().map(|module| (module, self.imports(module, &methods))).collect();
        let mut found = Vec::new();
        for (module, from) in &imports {
            for other in from.iter().filter(|other| reaches(&imports, other, module)) {
                found.push(format!("{} imports from {}", module.join("/"), other.join("/")));
            }
        }
        found
    }

    /// Returns the module of each method of the pipeline.
    fn methods(&self) -> BTreeMap<String, Module> {
        let defined = |(module, code): (&Module, &String)| -> Vec<_> {
            methods::defined(code).into_iter().map(|name| (name, module.clone())).collect()
        };
        self.modules.iter().flat_map(defined).collect()
    }

    /// Returns the modules that this one imports from.
    fn imports(&self, module: &Module, methods: &BTreeMap<String, Module>) -> BTreeSet<Module> {
        let Some(code) = self.modules.get(module) else { return BTreeSet::new() };
        let mut paths = absolute(code, "crate::", &[]);
        paths.extend(absolute(code, "super::", &module[..module.len().saturating_sub(1)]));
        for child in self.modules.keys().filter(|other| other.len() == module.len() + 1 && other.starts_with(module)) {
            let name = child.last().map_or("", String::as_str);
            paths.extend(absolute(code, &format!("{name}::"), child));
        }
        let called = methods::called(code, methods).into_iter().cloned();
        paths.iter().filter_map(|path| self.home(path)).chain(called).filter(|other| other != module).collect()
    }

    /// Returns the module in which a path ends. Re-exports on the path are followed.
    fn home(&self, path: &[String]) -> Option<Module> {
        let module = (0..=path.len()).rev().map(|length| &path[..length]);
        let module = module.into_iter().find(|part| part.is_empty() || self.modules.contains_key(*part))?;
        let code = if module.is_empty() { &self.root } else { self.modules.get(module)? };
        let shown = path.get(module.len()).and_then(|name| {
            let shown = shown(code).into_iter().find(|shown| shown.last() == Some(name))?;
            // Only re-exports from this module's children; other re-exports are defined elsewhere.
            let shown = [module, &shown].concat();
            // A whole crate that is re-exported by its name.
            if shown == path { None } else { self.home(&shown) }
        });
        shown.or_else(|| (!module.is_empty()).then(|| module.to_vec()))
    }
}

fn reaches(imports: &BTreeMap<&Module, BTreeSet<Module>>, from: &Module, to: &Module) -> bool {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        if module == to {
            return true;
        }
        if seen.insert(module) {
            next.extend(imports.get(module).into_iter().flatten());
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<String> {
        let module = |path: &str| -> Module { path.split('/').map(ToOwned::to_owned).collect() };
        let mut all = Files { root: String::new(), modules: BTreeMap::new() };
        files.iter().for_each(|(path, text)| all.add(&module(path), text));
        all.circles()
    }

    #[test]
    fn files_in_one_direction_are_no_circle() {
        let files = [
            ("lib", "mod a;\nmod b;\nmod c;\npub use a::A;\npub use c::{C, D};\n"),
            ("a", "use crate::b::{self, B};\nuse crate::{c::C};\n"),
            ("b", "use crate::c;\n/// Of [`A`](crate::a::A).\n#[cfg(test)]\nmod tests {\n    use crate::A;\n}\n"),
            ("c", "pub(crate) struct C;\n"),
        ];
        assert_eq!(circles(&files), [""; 0]);
    }

    #[test]
    fn a_circle_is_found_over_several_files_and_by_way_of_the_root() {
        let files = [
            ("lib", "mod a;\nmod b;\nmod c;\npub use a::{A, Z};\n"),
            ("a", "use crate::b::B;\n"),
            ("b", "fn b() { crate::c::c() }\n"),
            ("c", "use crate::{A};\n"),
            ("d", "use crate::a::A;\n"),
        ];
        assert_eq!(circles(&files), ["a imports from b", "b imports from c", "c imports from a"]);
    }

    #[test]
    fn a_circle_is_found_between_a_file_and_those_of_its_folder() {
        let files = [
            ("bare", "\nmod consumer;\npub(crate) use consumer::Consumer;\npub(crate) struct Bare;\n"),
            ("bare/consumer", "use super::{Bare, frames};\npub(crate) struct Consumer;\n"),
            ("bare/frames", "\n"),
        ];
        assert_eq!(circles(&files), ["bare imports from bare/consumer", "bare/consumer imports from bare"]);
    }

    #[test]
    fn a_name_that_is_shown_by_a_folder_is_at_home_in_its_file() {
        let files = [
            ("bare", "\nmod consumer;\nmod open;\npub(crate) use consumer::Consumer;\npub(crate) use open::Bare;\n"),
            ("bare/consumer", "use super::Bare;\n"),
            ("bare/open", "\n"),
            ("user", "use crate::bare::{Bare, Consumer};\n"),
        ];
        assert_eq!(circles(&files), [""; 0]);
    }

    #[test]
    fn the_crates_have_no_circles() {
        check().unwrap();
    }
}
