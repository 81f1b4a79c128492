//! Orders the functions of a program so that the functions that run are adjacent.
//!
//! The kernel maps sixteen pages of a program around each page fault. By default, the functions that a
//! process runs are spread over the whole program, so nearly every page becomes resident. The repository
//! contains a list of functions that ran in a benchmark. It omits the hash at the end of mangled names,
//! because the hash changes with the compiler and the dependencies; the linker's map lists the symbols of the
//! program with their hashes.

use std::collections::{BTreeMap, BTreeSet};

/// The symbols of a program in link order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FunctionOrder {
    /// One symbol per line, in the format of lld's `--symbol-ordering-file`.
    pub(super) text: String,
    /// The number of listed functions that the program contains.
    pub(super) found: usize,
    /// The number of listed functions.
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

/// The symbol in a line of a map. Lines of sections name a file, or are indented less.
fn map_symbol(line: &str) -> Option<&str> {
    let (before, symbol) = line.rsplit_once("                 ")?;
    let is_symbol = before.split_whitespace().count() == 4 && !symbol.contains([' ', ':']);
    is_symbol.then_some(symbol)
}

/// A mangled Rust name without its hash: `17h`, sixteen hexadecimal digits, `E`.
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
    fn every_instance_of_a_listed_function_is_ordered() {
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
    fn only_rust_hashes_are_removed() {
        assert_eq!(without_hash("_ZN1a1b17h0123456789abcdefE"), "_ZN1a1b");
        for symbol in ["memcpy", "_ZN1a1bE", "_ZN1a1b17h0123456789abcdeXE", ""] {
            assert_eq!(without_hash(symbol), symbol);
        }
    }
}
