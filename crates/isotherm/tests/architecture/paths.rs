//! Reads all paths from the code of a file, with the names that it imports written out.

use std::collections::HashMap;

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Item, ItemUse, UseTree};

use crate::source::{ItemPath, attributes, finish_path, is_for_tests};

/// The paths in the code of a file, in imports too, and their lines. Code that is compiled only for tests is left out.
/// An import has an effect in the whole file. That of all names of a module is a path that ends with `*`.
pub fn paths(text: &str) -> Vec<(ItemPath, usize)> {
    let file = syn::parse_file(text).expect("the source is Rust");
    let mut found = Found::default();
    found.items(file.items);
    let Found { imports, paths } = found;
    let written_out = paths.into_iter().map(|(path, line)| match imports.get(&path[0]) {
        Some(import) => ([import, &path[1..]].concat(), line),
        None => (path, line),
    });
    written_out.collect()
}

#[derive(Default)]
struct Found {
    /// The imported paths by the names that they have in the file.
    imports: HashMap<String, ItemPath>,
    paths: Vec<(ItemPath, usize)>,
}

impl Found {
    fn items(&mut self, items: Vec<Item>) {
        for item in items.into_iter().filter(|item| !attributes(item).iter().any(is_for_tests)) {
            match item {
                Item::Mod(module) => self.items(module.content.map_or_else(Vec::new, |(_, items)| items)),
                item => self.tokens(item.to_token_stream()),
            }
        }
    }

    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut at = 0;
        while at < tokens.len() {
            match &tokens[at] {
                TokenTree::Ident(first) => {
                    let line = first.span().start().line;
                    let end = tokens[at..].iter().position(|token| token.to_string() == ";");
                    let import = end.map(|end| tokens[at..=at + end].iter().cloned().collect());
                    if first == "use"
                        && let Some(Ok(import)) = import.map(syn::parse2::<ItemUse>)
                    {
                        self.import(&import.tree, &[], line);
                        at += end.unwrap_or(0) + 1;
                        continue;
                    }
                    at = finish_path(&tokens, at, Vec::new(), &mut |path| {
                        if !path.is_empty() {
                            self.paths.push((path, line));
                        }
                    });
                }
                TokenTree::Group(group) => {
                    self.tokens(group.stream());
                    at += 1;
                }
                _ => at += 1,
            }
        }
    }

    fn import(&mut self, tree: &UseTree, above: &[String], line: usize) {
        let below = |name: String| [above, &[name]].concat();
        let (path, known_as) = match tree {
            UseTree::Path(path) => return self.import(&path.tree, &below(path.ident.to_string()), line),
            UseTree::Group(group) => return group.items.iter().for_each(|tree| self.import(tree, above, line)),
            UseTree::Glob(_) => (below("*".into()), "*".into()),
            UseTree::Name(name) if name.ident == "self" => (above.to_vec(), above.last().cloned().unwrap_or_default()),
            UseTree::Rename(name) if name.ident == "self" => (above.to_vec(), name.rename.to_string()),
            UseTree::Name(name) => (below(name.ident.to_string()), name.ident.to_string()),
            UseTree::Rename(name) => (below(name.ident.to_string()), name.rename.to_string()),
        };
        self.imports.insert(known_as, path.clone());
        self.paths.push((path, line));
    }
}
