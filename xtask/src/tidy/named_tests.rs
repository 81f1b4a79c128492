//! The tests that the tables of conformance/README.md name.

use std::fs;
use std::path::Path;

use crate::task_error::TaskError;

const PAGE: &str = "conformance/README.md";

/// The heading of the section with the tables. The last column of a row contains tests as "`NAME`, `NAME` in
/// `FILE`", and a semicolon before those of another file.
const HEADING: &str = "## Parity with HyperShift";

/// A test that the page names.
#[derive(Debug)]
struct NamedTest<'a> {
    /// Counted from 1.
    line: usize,
    name: &'a str,
    /// Empty if the page names no file.
    file: &'a str,
}

/// Finds the named tests that do not exist in their file.
pub(super) fn find_missing_tests(root: &Path) -> Result<Vec<String>, TaskError> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).map_err(|source| TaskError::File {
        action: "read",
        path,
        source,
    })?;
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap_or_default();
    Ok(missing_tests(&page, read))
}

fn missing_tests(page: &str, read: impl Fn(&str) -> String) -> Vec<String> {
    let rows: Vec<_> = table_rows(page).collect();
    if rows.is_empty() {
        return vec![format!("{PAGE}: no tests are named below `{HEADING}`")];
    }
    let mut findings = Vec::new();
    for (line, row) in rows {
        let tests = tests_in_row(line, row);
        if tests.is_empty() {
            findings.push(format!("{PAGE}:{line}: the row names no test"));
        }
        let missing = tests.iter().filter(|test| !has_test(&read(test.file), test.name));
        findings.extend(missing.map(|test| {
            format!("{PAGE}:{}: `{}` has no test `{}`", test.line, test.file, test.name)
        }));
    }
    findings
}

/// Whether a function, or a trial of a conformance suite, has this name.
fn has_test(code: &str, name: &str) -> bool {
    code.contains(&format!("fn {name}(")) || code.contains(&format!("\"{name}\""))
}

/// The rows of the section's tables without their headers, each with its line.
fn table_rows(page: &str) -> impl Iterator<Item = (usize, &str)> {
    let section = page.lines().enumerate().skip_while(|(_, line)| *line != HEADING).skip(1);
    let section = section.take_while(|(_, line)| !line.starts_with("## "));
    let mut is_header = true;
    section.filter_map(move |(index, line)| {
        if !line.starts_with('|') {
            is_header = true;
            return None;
        }
        let is_separator = line.starts_with("|--");
        let is_row = !is_header && !is_separator;
        is_header &= !is_separator;
        is_row.then_some((index + 1, line))
    })
}

fn tests_in_row(line: usize, row: &str) -> Vec<NamedTest<'_>> {
    let cells = row.trim_end().trim_end_matches('|');
    let cell = cells.rsplit('|').next().unwrap_or_default();
    let mut tests = Vec::new();
    for part in cell.split(';') {
        let (names, file) = part.rsplit_once(" in `").unwrap_or((part, ""));
        let file = file.trim_end_matches([' ', '`']);
        let names = names.split('`').skip(1).step_by(2);
        tests.extend(names.map(|name| NamedTest { line, name, file }));
    }
    tests
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(table: &str) -> Vec<String> {
        let page = format!("| `x` in `no.rs` |\n\n{HEADING}\n\n{table}\n\n## Next\n\n| `x` |\n");
        missing_tests(&page, |file| match file {
            "one.rs" => "#[test]\nfn works() {}\ntrial(suite, \"suite::works\", works)".to_owned(),
            "two.rs" => "async fn fails() {}".to_owned(),
            _ => String::new(),
        })
    }

    #[test]
    fn named_tests_must_exist_in_their_file() {
        let header = "| behavior of `x` | tests |\n|---|---|\n";
        let row = "| `x` | `works`, `suite::works` in `one.rs`; `fails` in `two.rs` |";
        assert_eq!(missing(&format!("{header}{row}")), Vec::<String>::new());
        for (tests, expected) in [
            ("`works` in `two.rs`", "7: `two.rs` has no test `works`"),
            ("`work` in `one.rs`", "7: `one.rs` has no test `work`"),
            ("`works` in `three.rs`", "7: `three.rs` has no test `works`"),
            ("`works`", "7: `` has no test `works`"),
            ("", "7: the row names no test"),
        ] {
            let found = missing(&format!("{header}| `x` | {tests} |"));
            assert_eq!(found, [format!("{PAGE}:{expected}")], "{tests}");
        }
        assert_eq!(missing("No table.").len(), 1);
    }
}
