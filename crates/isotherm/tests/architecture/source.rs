//! Reads from the source of a crate what each of its modules defines, imports and uses.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Item, Meta, UseTree};

/// The names from the root of a crate down to a module or an item. The root itself has none.
pub type ItemPath = Vec<String>;

/// One module, without its child modules and without code that is compiled only for tests.
#[derive(Debug, Default)]
pub struct Module {
    /// The names of its items.
    defines: HashSet<String>,
    /// The names that it imports from this crate, and their full paths.
    imports: HashMap<String, ItemPath>,
    /// The modules of this crate from which it imports all names.
    globs: Vec<ItemPath>,
    /// Its paths that begin with `crate` or `super`.
    pub uses: Vec<Use>,
}

/// A path of this crate that is written in a module.
#[derive(Clone, Debug)]
pub struct Use {
    pub path: ItemPath,
    pub file: PathBuf,
    pub line: usize,
}

/// The modules of a crate by their paths.
#[derive(Debug, Default)]
pub struct Crate {
    pub modules: BTreeMap<ItemPath, Module>,
}

impl Crate {
    /// Reads the crate that has this root file.
    pub fn read(root: &Path) -> Self {
        let mut read = Self::default();
        let directory = root.parent().expect("a file lies in a directory");
        read.file(&[], root, directory);
        read
    }

    /// Reads a crate that consists of one file.
    pub fn parse(source: &str) -> Self {
        let mut read = Self::default();
        let parsed = syn::parse_file(source).expect("the source is Rust");
        read.items(&[], parsed.items, Path::new("lib.rs"), Path::new(""));
        read
    }

    /// The imports of all names of an ancestor module. They hide what is used.
    pub fn hidden_uses(&self) -> Vec<String> {
        let above = self.modules.iter().flat_map(|(path, module)| module.globs.iter().map(move |glob| (path, glob)));
        let hidden = above.filter(|(path, glob)| path.starts_with(glob));
        hidden.map(|(path, glob)| format!("crate::{} imports crate::{}::*", path.join("::"), glob.join("::"))).collect()
    }

    /// The module that defines the item at `path`, or the module at `path`.
    pub fn module_of(&self, path: &[String]) -> ItemPath {
        self.resolve(path, 0)
    }

    fn resolve(&self, path: &[String], depth: usize) -> ItemPath {
        assert!(depth < 20, "{path:?}: imports are cyclic");
        let mut at = ItemPath::new();
        for (index, name) in path.iter().enumerate() {
            let below = [at.as_slice(), std::slice::from_ref(name)].concat();
            let rest = &path[index + 1..];
            if self.modules.contains_key(&below) {
                at = below;
                continue;
            }
            let module = &self.modules[&at];
            let imported = module.imports.get(name).map(|import| [import, rest].concat());
            let imported = imported.or_else(|| {
                let globs = module.globs.iter().filter(|_| !module.defines.contains(name));
                let from = globs.map(|glob| self.resolve(glob, depth + 1)).find(|from| self.has(from, name));
                from.map(|from| [&from, std::slice::from_ref(name), rest].concat())
            });
            return imported.filter(|import| *import != path).map_or(at, |import| self.resolve(&import, depth + 1));
        }
        at
    }

    /// Whether a module defines or imports a name.
    fn has(&self, module: &ItemPath, name: &str) -> bool {
        let below = [module.as_slice(), &[name.to_owned()]].concat();
        let module = &self.modules[module];
        self.modules.contains_key(&below) || module.defines.contains(name) || module.imports.contains_key(name)
    }

    /// Reads one file. `directory` has the files of the modules that it declares.
    fn file(&mut self, path: &[String], file: &Path, directory: &Path) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.items(path, parsed.items, file, directory);
    }

    fn items(&mut self, path: &[String], items: Vec<Item>, file: &Path, directory: &Path) {
        let mut module = self.modules.remove(path).unwrap_or_default();
        let mut children = Vec::new();
        for item in items.into_iter().filter(|item| !attributes(item).iter().any(is_for_tests)) {
            match item {
                Item::Mod(child) => children.push(child),
                item => module.add(path, &item, file),
            }
        }
        self.modules.insert(path.to_vec(), module);
        for child in children {
            let name = child.ident.to_string();
            let path = [path, std::slice::from_ref(&name)].concat();
            let below = directory.join(&name);
            match (child.content, file_attribute(&child.attrs)) {
                (Some((_, items)), _) => self.items(&path, items, file, &below),
                (None, Some(named)) => {
                    let file = file.with_file_name(named);
                    self.file(&path, &file, file.parent().unwrap_or(&below));
                }
                (None, None) => {
                    let flat = directory.join(format!("{name}.rs"));
                    let nested = below.join("mod.rs");
                    self.file(&path, if flat.exists() { &flat } else { &nested }, &below);
                }
            }
        }
    }
}

impl Module {
    fn add(&mut self, path: &[String], item: &Item, file: &Path) {
        each_path(item.to_token_stream(), path, &mut |path, line| {
            self.uses.push(Use { path, file: file.to_owned(), line });
        });
        match item {
            Item::Use(import) => self.import(&import.tree, &mut Vec::new(), path),
            item => self.defines.extend(name(item)),
        }
    }

    fn import(&mut self, tree: &UseTree, prefix: &mut ItemPath, module: &[String]) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix, module);
                prefix.pop();
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.import(tree, prefix, module)),
            UseTree::Glob(_) => self.globs.extend(absolute(prefix, module)),
            UseTree::Name(name) => self.import_as(&name.ident.to_string(), None, prefix, module),
            UseTree::Rename(name) => {
                self.import_as(&name.ident.to_string(), Some(name.rename.to_string()), prefix, module);
            }
        }
    }

    fn import_as(&mut self, name: &str, rename: Option<String>, prefix: &[String], module: &[String]) {
        let mut path = prefix.to_vec();
        // `use a::{self}` imports `a`.
        if name != "self" {
            path.push(name.to_owned());
        }
        if let (Some(known_as), Some(path)) = (rename.or_else(|| path.last().cloned()), absolute(&path, module)) {
            self.imports.insert(known_as, path);
        }
    }
}

/// The path of an import from the root of the crate.
///
/// A path that begins with neither `crate`, `super` nor `self` belongs to a child module or to another crate. It is
/// treated as that of a child module. If it belongs to another crate, nothing is found there.
fn absolute(path: &[String], module: &[String]) -> Option<ItemPath> {
    let (first, rest) = path.split_first()?;
    Some(match first.as_str() {
        "crate" => rest.to_vec(),
        "self" => [module, rest].concat(),
        "super" => {
            let up = 1 + rest.iter().take_while(|name| *name == "super").count();
            [&module[..module.len().checked_sub(up)?], &path[up..]].concat()
        }
        _ => [module, path].concat(),
    })
}

/// Calls `tell` with each path in `tokens` that begins with `crate` or `super`, and with its line. `a::{b, c}` counts
/// as two paths.
fn each_path(tokens: TokenStream, module: &[String], tell: &mut dyn FnMut(ItemPath, usize)) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while at < tokens.len() {
        match &tokens[at] {
            TokenTree::Ident(first) if (first == "crate" || first == "super") && is_path_separator(&tokens, at + 1) => {
                let line = first.span().start().line;
                at = finish_path(&tokens, at, Vec::new(), &mut |path| {
                    absolute(&path, module).into_iter().for_each(|path| tell(path, line));
                });
            }
            TokenTree::Group(group) => {
                each_path(group.stream(), module, tell);
                at += 1;
            }
            _ => at += 1,
        }
    }
}

/// Calls `tell` with the path whose next name is at `at`, or with each path of a group at `at`. Returns the index after
/// the path.
pub fn finish_path(tokens: &[TokenTree], mut at: usize, mut path: ItemPath, tell: &mut dyn FnMut(ItemPath)) -> usize {
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(name)) => path.push(name.to_string()),
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                for part in inside.split(|token| matches!(token, TokenTree::Punct(p) if p.as_char() == ',')) {
                    if !part.is_empty() {
                        finish_path(part, 0, path.clone(), tell);
                    }
                }
                return at + 1;
            }
            // Of `a::*` and `a::<T>`, the path is `a`.
            _ => {
                tell(path);
                return at;
            }
        }
        if !is_path_separator(tokens, at + 1) {
            path.retain(|name| name != "self");
            tell(path);
            return at + 1;
        }
        at += 3;
    }
}

/// Whether `::` is at `at`.
fn is_path_separator(tokens: &[TokenTree], at: usize) -> bool {
    let colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == ':');
    colon(tokens.get(at)) && colon(tokens.get(at + 1))
}

/// The file of `#[path = "file"]`.
fn file_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("path")).find_map(|attribute| {
        let Meta::NameValue(value) = &attribute.meta else { return None };
        match &value.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        }
    })
}

/// Whether this is `#[cfg(test)]`, or a condition that only tests fulfil.
pub fn is_for_tests(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg") && attribute.parse_args::<Meta>().is_ok_and(|condition| needs_test(&condition))
}

fn needs_test(condition: &Meta) -> bool {
    let Meta::List(list) = condition else { return condition.path().is_ident("test") };
    let parts = list.parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated);
    let parts = parts.unwrap_or_default();
    if list.path.is_ident("all") {
        parts.iter().any(needs_test)
    } else if list.path.is_ident("any") {
        !parts.is_empty() && parts.iter().all(needs_test)
    } else {
        false
    }
}

pub fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
