//! Reads the module graph of all crates from their sources, and finds cycles in it.
//!
//! A node is a module of a crate's root, with everything below it. An edge is a path in code that
//! is not for tests alone: `crate::b::Name` in module `a` is a -> b. Names that the root re-exports
//! (`pub use b::Name`) count as names of `b`.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// Edges between modules of a crate's root, each with the places that make it.
type Graph = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Returns whether an item with these attributes is compiled for tests alone.
fn for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let tokens = match &attribute.meta {
            syn::Meta::List(list) if list.path.is_ident("cfg") => list.tokens.to_string(),
            meta => return meta.path().is_ident("test"),
        };
        tokens == "test" || tokens.starts_with("all (test")
    })
}

/// Returns the attributes of an item.
fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// Appends every path that a `use` brings in to `paths`.
fn expand(tree: &UseTree, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(it) => {
            path.push(it.ident.to_string());
            expand(&it.tree, path, paths);
            path.pop();
        }
        UseTree::Group(it) => it.items.iter().for_each(|tree| expand(tree, path, paths)),
        UseTree::Name(it) => paths.push([path.as_slice(), &[it.ident.to_string()]].concat()),
        UseTree::Rename(it) => paths.push([path.as_slice(), &[it.ident.to_string()]].concat()),
        UseTree::Glob(_) => paths.push(path.clone()),
    }
}

/// Collects the paths in code, including those in the arguments of macros.
#[derive(Default)]
struct Paths(Vec<Vec<String>>);

impl<'ast> Visit<'ast> for Paths {
    fn visit_item(&mut self, item: &'ast Item) {
        // Modules are read one by one.
        if !for_tests(attributes(item)) && !matches!(item, Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !for_tests(&item.attrs) {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        expand(&item.tree, &mut Vec::new(), &mut self.0);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names = path.segments.iter().map(|it| it.ident.to_string());
        self.0.push(names.collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        let arguments = Punctuated::<syn::Expr, syn::Token![,]>::parse_terminated;
        if let Ok(arguments) = arguments.parse2(it.tokens.clone()) {
            for argument in &arguments {
                self.visit_macro_argument(argument);
            }
        }
    }
}

impl Paths {
    fn visit_macro_argument(&mut self, argument: &syn::Expr) {
        let mut inner = Paths::default();
        inner.visit_expr(argument);
        self.0.extend(inner.0);
    }
}

/// One crate as it is read.
struct Crate {
    /// Modules of the root.
    modules: BTreeSet<String>,
    /// Names that the root re-exports, with the module that each comes from.
    handed_on: BTreeMap<String, String>,
    graph: Graph,
}

impl Crate {
    /// Reads the crate whose root is `source`/lib.rs.
    fn read(source: &Path) -> Self {
        let root = syn::parse_file(&fs::read_to_string(source.join("lib.rs")).unwrap()).unwrap();
        let mut read = Self {
            modules: BTreeSet::new(),
            handed_on: BTreeMap::new(),
            graph: Graph::new(),
        };
        let modules = root.items.iter().filter_map(|item| match item {
            Item::Mod(it) if !for_tests(&it.attrs) => Some(it.ident.to_string()),
            _ => None,
        });
        read.modules = modules.collect();
        for item in &root.items {
            if let Item::Use(it) = item {
                let mut paths = Vec::new();
                expand(&it.tree, &mut Vec::new(), &mut paths);
                for path in paths {
                    if let [module, .., name] = path.as_slice() {
                        read.handed_on.insert(name.clone(), module.clone());
                    }
                }
            }
        }
        for module in read.modules.clone() {
            read.module(&[module], source);
        }
        read
    }

    /// Reads the file of the module at `path`, which is in `folder`, and those below it.
    fn module(&mut self, path: &[String], folder: &Path) {
        let name = path.last().unwrap();
        let below = folder.join(name);
        let candidates = [folder.join(format!("{name}.rs")), below.join("mod.rs")];
        let file = candidates.iter().find(|file| file.exists()).unwrap();
        let parsed = syn::parse_file(&fs::read_to_string(file).unwrap()).unwrap();
        self.items(&parsed.items, path, file, &below);
    }

    fn items(&mut self, items: &[Item], path: &[String], file: &Path, below: &Path) {
        let mut paths = Paths::default();
        items.iter().for_each(|item| paths.visit_item(item));
        for used in paths.0 {
            self.edge(path, &used, file);
        }
        for item in items {
            let Item::Mod(it) = item else { continue };
            if for_tests(&it.attrs) {
                continue;
            }
            let path = [path, &[it.ident.to_string()]].concat();
            match &it.content {
                Some((_, items)) => {
                    self.items(items, &path, file, &below.join(it.ident.to_string()));
                }
                None => self.module(&path, below),
            }
        }
    }

    /// Adds the edge of the path `used`, if it is one, from the module at `path`.
    fn edge(&mut self, path: &[String], used: &[String], file: &Path) {
        let ups = used.iter().take_while(|part| *part == "super").count();
        let absolute = match used.first().map(String::as_str) {
            Some("crate") => used[1..].to_vec(),
            Some("super") if ups <= path.len() => {
                [&path[..path.len() - ups], &used[ups..]].concat()
            }
            _ => return,
        };
        let Some(first) = absolute.first() else {
            return;
        };
        let target = self.handed_on.get(first).unwrap_or(first);
        if self.modules.contains(target) && *target != path[0] {
            let place = format!("{}: {}", file.display(), absolute.join("::"));
            let edges = self.graph.entry(path[0].clone()).or_default();
            edges.entry(target.clone()).or_default().insert(place);
        }
    }
}

/// Returns the modules that can be reached from `from` by one edge or more.
fn reachable(graph: &Graph, from: &str) -> BTreeSet<String> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from.to_owned()]);
    while let Some(module) = next.pop() {
        for target in graph.get(&module).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(target.clone()) {
                next.push(target.clone());
            }
        }
    }
    seen
}

/// Returns the edges that are part of a cycle, with the places that make them.
fn loops(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (from, edges) in graph {
        for (to, places) in edges {
            if reachable(graph, to).contains(from) {
                let places: Vec<_> = places.iter().map(|place| format!("  {place}\n")).collect();
                found.push(format!("{from} -> {to}\n{}", places.concat()));
            }
        }
    }
    found
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../{name}/src"))
}

#[test]
fn no_module_of_a_crate_imports_one_that_imports_it() {
    let mut found = Vec::new();
    for name in ["cpu", "disk", "datasets", "models", "results", "lra"] {
        let read = Crate::read(&source(name));
        assert!(read.modules.len() > 1, "{name}: the modules were not read");
        found.extend(loops(&read.graph));
    }
    assert!(found.is_empty(), "loops:\n{}", found.join(""));
}

#[test]
fn a_loop_is_found_wherever_it_closes() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("lib.rs", "mod a; mod b; mod c; pub use c::Name;");
    write("a.rs", "fn f() { assert!(crate::b::g(1)); }");
    write("b/mod.rs", "mod inner;");
    write(
        "b/inner.rs",
        "use super::super::c;\n#[cfg(test)] mod tests { use crate::a::f; }",
    );
    write("c.rs", "pub struct Name;");
    assert_eq!(loops(&Crate::read(folder.path()).graph), [""; 0]);
    write("c.rs", "#[test] fn t() { crate::a::f(); }");
    assert_eq!(loops(&Crate::read(folder.path()).graph), [""; 0]);
    for closing in [
        "use crate::{a::f, b};",
        "fn g() -> crate::a::T { todo!() }",
        "fn g() { println!(\"{}\", crate::a::f()) }",
    ] {
        write("c.rs", closing);
        let found = loops(&Crate::read(folder.path()).graph);
        assert_eq!(
            found.len(),
            3 + usize::from(closing.contains("b}")),
            "{closing}: {found:?}"
        );
    }
    write("a.rs", "use crate::Name;");
    write("c.rs", "pub struct Name(super::a::T);");
    assert_eq!(loops(&Crate::read(folder.path()).graph).len(), 2);
}

/// Checks that no file of tests is left out: each is a module of `tests/all.rs`, or a program that
/// the manifest names.
#[test]
fn every_file_of_tests_is_run() {
    for name in ["datasets", "models", "results", "lra"] {
        let crate_folder = source(name).join("..");
        let modules = fs::read_to_string(crate_folder.join("tests/all.rs")).unwrap();
        let manifest = fs::read_to_string(crate_folder.join("Cargo.toml")).unwrap();
        for entry in fs::read_dir(crate_folder.join("tests")).unwrap() {
            let path = entry.unwrap().path();
            let is_file = path.extension().is_some_and(|it| it == "rs");
            if !is_file && !path.join("main.rs").exists() {
                continue;
            }
            let stem = path.file_stem().unwrap().to_str().unwrap();
            let is_module = modules.lines().any(|line| line == format!("mod {stem};"));
            let is_program = manifest.contains(&format!("[[test]]\nname = \"{stem}\"\n"));
            assert!(
                is_module != is_program,
                "{}: add it to tests/all.rs as `mod {stem};`",
                path.display()
            );
        }
    }
}
