//! Names of call stacks: the functions that tell people something, the innermost first.

use std::borrow::Cow;

use isotherm_core::{StackFrame, sanitise};

/// The functions of an allocator that programs call. What these call in turn is left out.
const ALLOCATORS: [&str; 8] =
    ["malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc", "valloc", "reallocarray"];

/// Functions that call `main` or the function of a thread.
const STARTERS: [&str; 8] = [
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "__libc_start_main_impl",
    "start_thread",
    "clone",
    "clone3",
    "__clone",
];

/// The function that everything begins with for people.
const MAIN: &str = "main";

/// The longest name of a function, in characters.
pub(super) const LONGEST: usize = 80;

/// How many functions of a long stack a terminal shows.
const INNERMOST: usize = 6;
const OUTERMOST: usize = 2;

/// What joins functions to the name of a stack.
const CALLED_BY: &str = " ← ";

/// The name of a stack: its functions, the innermost first.
pub(crate) fn name(frames: &[StackFrame]) -> String {
    functions(frames).join(CALLED_BY)
}

/// The functions of the name of a stack, the innermost first.
pub(crate) fn functions_of(name: &str) -> Vec<&str> {
    name.split(CALLED_BY).collect()
}

/// The name of a stack for a terminal: of many functions, the innermost and the outermost ones.
pub(crate) fn brief(name: &str) -> Cow<'_, str> {
    let functions = functions_of(name);
    if functions.len() <= INNERMOST + OUTERMOST + 1 {
        return name.into();
    }
    let outermost = &functions[functions.len() - OUTERMOST..];
    [&functions[..INNERMOST], &["…"], outermost].concat().join(CALLED_BY).into()
}

/// The functions of a stack that tell people something, the innermost first; never none.
///
/// Functions without a name are left out next to functions with one of the same file, as those of libc. Elsewhere the
/// file and the place in it stand for them.
pub(crate) fn functions(frames: &[StackFrame]) -> Vec<String> {
    let of_name = |names: &[&str], frame: &StackFrame| frame.function.as_deref().is_some_and(|f| names.contains(&f));
    let allocates = |frame: &StackFrame| frame.function.as_deref().is_some_and(|f| ALLOCATORS.contains(&public(f)));
    let first = frames.iter().position(allocates).unwrap_or(0);
    let frames = &frames[first..];
    let main = frames.iter().position(|frame| of_name(&[MAIN], frame));
    let starter = frames.iter().position(|frame| of_name(&STARTERS, frame));
    let mut end = main.map(|main| main + 1).or(starter.filter(|&starter| starter > 0)).unwrap_or(frames.len());
    // In a stripped libc, what starts a thread has no name.
    while end > 1 && is_unnamed_libc(&frames[end - 1]) {
        end -= 1;
    }
    let mut shown = Vec::new();
    for (nth, frame) in frames.iter().enumerate().take(end) {
        match &frame.function {
            Some(function) => shown.push(short(function)),
            None => {
                let unnamed = |frame: &&StackFrame| frame.function.is_none();
                let same = |other: Option<&StackFrame>| other.is_some_and(|other| other.module == frame.module);
                let before = frames[..nth].iter().rev().find(|frame| !unnamed(frame));
                let after = frames[nth..].iter().find(|frame| !unnamed(frame));
                let repeats = nth > 0 && unnamed(&&frames[nth - 1]) && same(frames.get(nth - 1));
                if !repeats && !same(before) && !same(after) {
                    shown.push(place(frame));
                }
            }
        }
    }
    if shown.is_empty() {
        shown.extend(frames.first().map(place));
    }
    shown
}

fn is_unnamed_libc(frame: &StackFrame) -> bool {
    let module = frame.module.as_deref().unwrap_or_default();
    frame.function.is_none() && module.rsplit('/').next().is_some_and(|file| file.starts_with("libc.so"))
}

/// The place of code without a name.
fn place(frame: &StackFrame) -> String {
    match &frame.module {
        Some(module) => format!("{}+{:#x}", sanitise(module.rsplit('/').next().unwrap_or(module)), frame.offset),
        None => "code without a name".into(),
    }
}

/// The suffixes that compilers add to the names of functions that they make from others.
const VARIANTS: [&str; 5] = [".constprop.", ".isra.", ".part.", ".cold", ".llvm."];

/// The name of a function of libc that programs use: glibc has `__libc_malloc` for `malloc`.
fn public(function: &str) -> &str {
    function.strip_prefix("__libc_").filter(|name| ALLOCATORS.contains(name)).unwrap_or(function)
}

/// The name of a function without its parameters, and without what compilers have added.
fn short(function: &str) -> String {
    let name = match function.find("operator()").or_else(|| function.strip_prefix('(').map(|_| 0)) {
        // A parenthesis belongs to these names.
        Some(_) => function,
        None => parameters(function).map_or(function, |start| &function[..start]),
    };
    let variant = VARIANTS.iter().filter_map(|variant| name.find(variant)).min();
    let name = sanitise(public(&name[..variant.unwrap_or(name.len())]));
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.into_owned(),
    }
}

/// Where the parameters of a C++ function begin: at a parenthesis after a name.
fn parameters(function: &str) -> Option<usize> {
    function.match_indices('(').map(|(at, _)| at).find(|&at| {
        let after_name = function[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '>');
        after_name && function.ends_with([')', 't', '&', ']'])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: Option<&str>, module: &str) -> StackFrame {
        StackFrame { function: function.map(Into::into), module: Some(module.into()), offset: 0x1f0 }
    }

    fn stack(frames: &[(&str, &str)]) -> String {
        let frames = frames.iter().map(|(function, module)| frame((!function.is_empty()).then_some(function), module));
        name(&frames.collect::<Vec<_>>())
    }

    #[test]
    fn what_is_inside_of_malloc_and_outside_of_main_is_left_out() {
        let libc = "/lib/libc.so.6";
        let malloc = [("mmap", libc), ("", libc), ("malloc", libc), ("table_grow", "/bin/p"), ("main", "/bin/p")];
        let starters = [("", libc), ("__libc_start_main", libc), ("_start", "/bin/p")];
        assert_eq!(stack(&[&malloc[..], &starters].concat()), "malloc ← table_grow ← main");
        assert_eq!(stack(&[("mmap", libc), ("__libc_calloc", libc), ("f", "/bin/p")]), "calloc ← f");
        assert_eq!(stack(&[("mmap", libc), ("open_index", "/bin/p"), ("main", "/bin/p")]), "mmap ← open_index ← main");
        assert_eq!(stack(&[("mmap", libc), ("run", "/bin/p"), ("", libc), ("start_thread", libc)]), "mmap ← run");
        assert_eq!(stack(&[("mmap", libc), ("run", "/bin/p"), ("", libc)]), "mmap ← run");
    }

    #[test]
    fn functions_without_a_name_have_the_place_in_their_file_unless_a_neighbour_tells_enough() {
        let (libc, redis) = ("/lib/libc.so.6", "/usr/bin/redis-server");
        let frames = [("malloc", libc), ("", redis), ("", redis), ("", libc), ("__libc_start_main", libc)];
        assert_eq!(stack(&frames), "malloc ← redis-server+0x1f0");
        assert_eq!(stack(&[("", libc)]), "libc.so.6+0x1f0");
        let no_file = [StackFrame { function: None, module: None, offset: 7 }];
        assert_eq!(name(&no_file), "code without a name");
    }

    #[test]
    fn a_terminal_shows_the_ends_of_a_long_stack() {
        let functions: Vec<String> = (0..20).map(|nth| format!("f{nth}")).collect();
        let name = functions.join(CALLED_BY);
        assert_eq!(brief(&name), "f0 ← f1 ← f2 ← f3 ← f4 ← f5 ← … ← f18 ← f19");
        assert_eq!(brief("a ← b"), "a ← b");
    }

    #[test]
    fn parameters_are_left_out_and_parentheses_of_names_stay() {
        let shown = |function: &str| stack(&[(function, "/bin/p")]);
        assert_eq!(shown("node::Buffer::New(v8::Isolate*, unsigned long)"), "node::Buffer::New");
        assert_eq!(shown("(anonymous namespace)::grow(int)"), "(anonymous namespace)::grow(int)");
        assert_eq!(shown("f::operator()(int) const"), "f::operator()(int) const");
        assert_eq!(shown("LazyCompile:*grow app.js:7"), "LazyCompile:*grow app.js:7");
        assert_eq!(shown("table_grow.isra.0.constprop.1"), "table_grow");
        assert_eq!(shown("a\u{1b}[31m"), "a\\x1b[31m");
    }
}
