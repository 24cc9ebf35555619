//! The layers of idem's core: each layer imports only from the layers before it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::root;
use crate::imports::{absolute, collect, without_comments};

/// Folders of `idem-core/src`. All other modules are below them and import from none of them.
const LAYERS: [&str; 9] = ["runtime", "execute", "record", "process", "batch", "inbox", "call", "relay", "worker"];

/// Checks every import. The error lists each import from a higher layer.
pub(crate) fn check() -> Result<()> {
    let core = root().join("idem-core").join("src");
    let mut files = Vec::new();
    collect(&core, &mut files)?;
    let mut wrong = Vec::new();
    for file in files {
        let inside = file.strip_prefix(&core)?;
        let folder = inside.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
        // A module without a layer is below the first one; the crate's root may import from all.
        let above = LAYERS.iter().position(|layer| *layer == folder).map_or(0, |at| at + 1);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        if inside != Path::new("lib.rs") {
            let upwards = LAYERS[above..].iter().filter(|layer| imports(&text, layer));
            wrong.extend(upwards.map(|layer| format!("{} imports from {layer}", inside.display())));
        }
    }
    if !wrong.is_empty() {
        bail!(
            "the layers are {}, and each imports only from those before it:\n{}",
            LAYERS.join(", "),
            wrong.join("\n")
        );
    }
    Ok(())
}

/// Returns whether a path in this file leads into that layer.
fn imports(text: &str, layer: &str) -> bool {
    absolute(&without_comments(text), "crate::", &[])
        .iter()
        .any(|path| path.first().is_some_and(|first| first == layer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_is_found_alone_and_in_a_group() {
        assert!(imports("use crate::worker::Lane;", "worker"));
        assert!(imports("use crate::{Store, worker::Lane};", "worker"));
        assert!(imports("let lane = crate::worker::lane();", "worker"));
        assert!(imports("use crate::{\n    store::{Row, RowResult},\n    {worker::Lane},\n};", "worker"));
        assert!(imports("use crate::{store::{Row, row::{self, RowKind}}, runtime, worker};", "worker"));
        assert!(!imports("use crate::{store::worker::Lane, runtime::{worker, Queue}};", "worker"));
        assert!(!imports("use crate::workers::Lane; // worker::Lane", "worker"));
    }

    #[test]
    fn the_core_keeps_to_its_layers() {
        check().unwrap();
    }
}
