//! The order of the functions in a program, so that those that run lie side by side.
//!
//! The kernel maps the pages of a program sixteen at a time around each one that is touched, and the
//! functions that a process runs are spread over all of it by default: nearly every page gets resident.
//! A list of functions that were seen running is kept in the repository. It names them without the hash
//! that ends a mangled name, because the hash changes with the compiler and the dependencies; the map that
//! the linker writes says which symbols have such a name in the program at hand.

use std::collections::{BTreeMap, BTreeSet};

/// The symbols of a program in the order in which they should be linked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FunctionOrder {
    /// One symbol per line, as `--symbol-ordering-file` of lld reads it.
    pub(super) text: String,
    /// How many functions of the list the program has.
    pub(super) found: usize,
    /// How many functions the list has.
    pub(super) listed: usize,
}

impl FunctionOrder {
    /// Looks up the listed functions in the map of a program (`-Map` of lld, with `--no-demangle`).
    pub(super) fn new(list: &str, map: &str) -> Self {
        let mut symbols: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for symbol in map.lines().filter_map(map_symbol) {
            symbols.entry(without_hash(symbol)).or_default().insert(symbol);
        }
        let mut order = Self { text: String::new(), found: 0, listed: 0 };
        for name in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            order.listed += 1;
            let Some(symbols) = symbols.get(name) else { continue };
            order.found += 1;
            for symbol in symbols {
                order.text.push_str(symbol);
                order.text.push('\n');
            }
        }
        order
    }
}

/// The functions in a map: the address of each (hexadecimal) and its symbol.
pub(super) fn map_functions(map: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut is_code = false;
    map.lines().filter_map(move |line| match map_symbol(line) {
        Some(symbol) if is_code => Some((line.split_whitespace().next()?, symbol)),
        Some(_) => None,
        None => {
            is_code = line.contains(":(.text");
            None
        }
    })
}

/// The symbol in a line of a map. Lines of sections name a file, or stand further left.
fn map_symbol(line: &str) -> Option<&str> {
    let (before, symbol) = line.rsplit_once("                 ")?;
    let is_symbol = before.split_whitespace().count() == 4 && !symbol.contains([' ', ':']);
    is_symbol.then_some(symbol)
}

/// A mangled name of Rust's without its hash: `17h`, sixteen hexadecimal digits, `E`.
pub(super) fn without_hash(symbol: &str) -> &str {
    let Some((name, hash)) =
        symbol.len().checked_sub(20).and_then(|at| symbol.split_at_checked(at))
    else {
        return symbol;
    };
    let digits = hash.strip_prefix("17h").and_then(|rest| rest.strip_suffix('E'));
    match digits {
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "             VMA              LMA     Size Align Out     In      Symbol
          3a1824           3a1824       1d     1 .text
          3a1824           3a1824       1d     1         /t/lanyard.o:(.text._ZN1a1b17h0123456789abcdefE)
          3a1824           3a1824       1d     1                 _ZN1a1b17h0123456789abcdefE
          3a1841           3a1841       1d     1                 _ZN1a1c17hfedcba9876543210E
          3a1861           3a1861       1d     1                 _ZN1a1b17h1123456789abcdefE
          3a1871           3a1871       1d     1                 memcpy
";

    #[test]
    fn every_instance_of_a_listed_function_is_placed_in_the_order_of_the_list() {
        let order = FunctionOrder::new("# comment\nmemcpy\n_ZN1a1b\n_ZN1a1d\n", MAP);
        let text = "memcpy\n_ZN1a1b17h0123456789abcdefE\n_ZN1a1b17h1123456789abcdefE\n";
        assert_eq!(order, FunctionOrder { text: text.to_owned(), found: 2, listed: 3 });
    }

    #[test]
    fn functions_are_the_symbols_of_sections_with_code() {
        let map = format!(
            "{MAP}          4a1871           4a1871       1d     1         /t/a.o:(.data.x)\n          4a1871           4a1871       1d     1                 x\n"
        );
        let functions: Vec<_> = map_functions(&map).collect();
        assert_eq!(functions.len(), 4);
        assert_eq!(functions[3], ("3a1871", "memcpy"));
    }

    #[test]
    fn only_the_hash_of_rust_is_cut_off() {
        assert_eq!(without_hash("_ZN1a1b17h0123456789abcdefE"), "_ZN1a1b");
        for symbol in ["memcpy", "_ZN1a1bE", "_ZN1a1b17h0123456789abcdeXE", ""] {
            assert_eq!(without_hash(symbol), symbol);
        }
    }
}
