//! Tables for people, in the style of `kubectl get`. They fit into the terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, ColumnConstraint, Table, Width};

/// How a column becomes narrower if the table does not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnKind {
    /// Names and words, which stay whole.
    Name,
    /// Numbers, which stay whole and are aligned to the right.
    Number,
    /// Identifiers such as those of Azure resources: `…` replaces their middle.
    Identifier,
    /// Sentences, which continue on the next line.
    Text,
}

/// A table. JSON and YAML documents contain the cells that it abbreviates.
#[derive(Debug, Clone)]
pub(crate) struct TextTable {
    columns: Vec<TableColumn>,
    /// The number of columns at the left that identify a row.
    key_columns: usize,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Clone)]
struct TableColumn {
    kind: ColumnKind,
    header: String,
}

/// The widths of a table: those of the columns without a limit, and the limit of a line.
#[derive(Debug)]
struct TableLayout {
    natural: Vec<usize>,
    limit: usize,
    gap: u16,
}

/// The space between two columns.
const GAP: u16 = 3;
/// The space between two columns of a table that is too wide with [`GAP`].
const NARROW_GAP: u16 = 2;
/// The width to which identifiers are abbreviated.
const SHORTEST_IDENTIFIER: usize = 16;
/// The width to which sentences are wrapped.
const NARROWEST_TEXT: usize = 24;

impl TextTable {
    /// Creates a table with these columns. The first column identifies the row.
    pub(crate) fn new<const N: usize>(columns: [(ColumnKind, &'static str); N]) -> Self {
        Self::with_columns(columns.map(|(kind, header)| (kind, header.to_owned())))
    }

    /// Creates a table whose columns follow from data.
    pub(crate) fn with_columns(columns: impl IntoIterator<Item = (ColumnKind, String)>) -> Self {
        let columns = columns.into_iter().map(|(kind, header)| TableColumn { kind, header });
        Self { columns: columns.collect(), key_columns: 1, rows: Vec::new() }
    }

    /// Sets the number of columns at the left that identify a row.
    pub(crate) fn with_key_columns(mut self, count: usize) -> Self {
        self.key_columns = count;
        self
    }

    /// Adds a row, with a cell for each column.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Formats the table in lines of at most `line_width` characters. If the columns do not fit side by side,
    /// further columns follow below, behind the columns that identify the row. Names and numbers are never cut, so
    /// a very narrow terminal wraps them.
    pub(crate) fn render(&self, line_width: Option<usize>) -> String {
        let limit = line_width.unwrap_or(usize::MAX);
        let natural: Vec<_> = (0..self.columns.len()).map(|it| self.natural_width(it)).collect();
        let fits = total_width(natural.iter().copied(), GAP) <= limit;
        let layout = TableLayout { natural, limit, gap: if fits { GAP } else { NARROW_GAP } };
        let blocks = self.column_blocks(&layout);
        let blocks: Vec<_> =
            blocks.iter().map(|columns| self.render_block(columns, &layout)).collect();
        blocks.join("\n\n")
    }

    fn natural_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let lines = cells.flat_map(|cell| cell.lines());
        let header = self.columns.get(column).map(|it| it.header.as_str());
        header.into_iter().chain(lines).map(|line| line.chars().count()).max().unwrap_or_default()
    }

    fn minimal_width(&self, column: usize, natural: &[usize]) -> usize {
        let (TableColumn { kind, header }, natural) = (&self.columns[column], natural[column]);
        let shortest = match kind {
            ColumnKind::Name | ColumnKind::Number => natural,
            ColumnKind::Identifier => SHORTEST_IDENTIFIER,
            ColumnKind::Text => NARROWEST_TEXT,
        };
        shortest.max(header.chars().count()).min(natural)
    }

    /// Divides the columns into blocks that fit. Each block begins with the columns that identify the row.
    fn column_blocks(&self, layout: &TableLayout) -> Vec<Vec<usize>> {
        let fits = |columns: &[usize]| {
            let minimal = columns.iter().map(|column| self.minimal_width(*column, &layout.natural));
            total_width(minimal, layout.gap) <= layout.limit
        };
        let mut blocks = Vec::new();
        let keys: Vec<usize> = (0..self.key_columns).collect();
        let mut block = keys.clone();
        for column in self.key_columns..self.columns.len() {
            block.push(column);
            if !fits(&block) && block.len() > keys.len() + 1 {
                block.pop();
                blocks.push(std::mem::replace(&mut block, [&keys[..], &[column]].concat()));
            }
        }
        blocks.push(block);
        blocks
    }

    /// The widths of the columns of a block: the widest one that may be narrower shrinks first.
    fn fitted_widths(&self, columns: &[usize], layout: &TableLayout) -> Vec<usize> {
        let TableLayout { natural, limit, gap } = layout;
        let mut widths: Vec<_> = columns.iter().map(|column| natural[*column]).collect();
        let mut excess = total_width(widths.iter().copied(), *gap).saturating_sub(*limit);
        while excess > 0 {
            let shrinkable = columns
                .iter()
                .enumerate()
                .filter(|(place, column)| widths[*place] > self.minimal_width(**column, natural));
            let widest = shrinkable.map(|(place, _)| place).max_by_key(|place| widths[*place]);
            let Some(place) = widest else { break };
            widths[place] -= 1;
            excess -= 1;
        }
        widths
    }

    fn render_block(&self, columns: &[usize], layout: &TableLayout) -> String {
        let widths = self.fitted_widths(columns, layout);
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_header(columns.iter().map(|column| self.columns[*column].header.as_str()));
        for row in &self.rows {
            table.add_row(columns.iter().zip(&widths).map(|(column, width)| {
                let cell = row.get(*column).map(String::as_str).unwrap_or_default();
                match self.columns[*column].kind {
                    ColumnKind::Identifier => abbreviate_middle(cell, *width),
                    _ => cell.to_owned(),
                }
            }));
        }
        for ((drawn, column), width) in table.column_iter_mut().zip(columns).zip(widths) {
            let width = u16::try_from(width).unwrap_or(u16::MAX).saturating_add(layout.gap);
            drawn.set_padding((0, layout.gap));
            drawn.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
            if self.columns[*column].kind == ColumnKind::Number {
                drawn.set_cell_alignment(CellAlignment::Right);
            }
        }
        let lines: Vec<_> =
            table.to_string().lines().map(|line| line.trim_end().to_owned()).collect();
        lines.join("\n")
    }
}

/// The width of columns side by side.
fn total_width(widths: impl Iterator<Item = usize>, gap: u16) -> usize {
    let (columns, sum) =
        widths.fold((0_usize, 0_usize), |(columns, sum), width| (columns + 1, sum + width));
    sum + usize::from(gap) * columns.saturating_sub(1)
}

/// Replaces the middle of a text that is longer than `width`. The end keeps more, because it names the object.
fn abbreviate_middle(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let shown_length = width.saturating_sub(1);
    let end = shown_length.div_ceil(3) * 2;
    let end = end.min(shown_length);
    let start: String = text.chars().take(shown_length - end).collect();
    let rest: String = text.chars().skip(length - end).collect();
    format!("{start}…{rest}")
}

#[cfg(test)]
mod tests {
    use super::ColumnKind::{Identifier, Name, Number, Text};
    use super::*;

    const SUBNET: &str = "/subscriptions/0f2d1c9e-6b47-4e0a-9d53-7c1f6a2b8e40/resourceGroups/harbour/\
        providers/Microsoft.Network/virtualNetworks/harbour/subnets/workers";

    fn longest_line(text: &str) -> usize {
        text.lines().map(|line| line.chars().count()).max().unwrap_or_default()
    }

    #[test]
    fn table_without_a_limit_contains_every_cell() {
        let mut table = TextTable::new([(Name, "NAME"), (Number, "MS"), (Identifier, "ID")]);
        table.add_row(["disk", "7.5", SUBNET]);
        table.add_row(["file", "12.0", "-"]);
        let expected = format!("NAME     MS   ID\ndisk    7.5   {SUBNET}\nfile   12.0   -");
        assert_eq!(table.render(None), expected);
        assert_eq!(table.render(Some(1_000)), expected);
    }

    #[test]
    fn identifier_keeps_its_start_and_its_end() {
        let mut table = TextTable::new([(Name, "NAME"), (Identifier, "ID")]);
        table.add_row(["workers", SUBNET]);
        let text = table.render(Some(60));
        assert_eq!(longest_line(&text), 60, "{text}");
        assert!(text.contains("workers  /subscriptions/0…"), "{text}");
        assert!(text.ends_with("Networks/harbour/subnets/workers"), "{text}");
        assert_eq!(abbreviate_middle("abcdefghij", 7), "ab…ghij");
        assert_eq!(abbreviate_middle("abcdefghij", 10), "abcdefghij");
    }

    #[test]
    fn sentence_continues_on_the_next_line() {
        let mut table = TextTable::new([(Name, "DRILL"), (Text, "WHAT HAPPENS")]);
        table.add_row(["slow", "every request of the first minute waits for ten seconds"]);
        let expected = "DRILL  WHAT HAPPENS\nslow   every request of the first\n       \
            minute waits for ten seconds";
        assert_eq!(table.render(Some(36)), expected);
    }

    #[test]
    fn columns_that_do_not_fit_follow_below_with_the_first_column() {
        let columns = ["COMPONENT", "FIRST", "SECOND", "THIRD"].map(|header| (Name, header));
        let mut table = TextTable::new(columns);
        table.add_row(["controlPlaneOperator", "1", "2", "3"]);
        let expected = "COMPONENT             FIRST  SECOND\ncontrolPlaneOperator  1      2\n\n\
            COMPONENT             THIRD\ncontrolPlaneOperator  3";
        assert_eq!(table.render(Some(38)), expected);
    }

    #[test]
    fn every_row_of_every_block_contains_the_key_columns() {
        let columns = ["NAMESPACE", "HOSTEDCLUSTER", "READY", "VERSION", "EXPIRES", "REASON"];
        let mut table = TextTable::new(columns.map(|header| (Name, header))).with_key_columns(2);
        let keys = [("clusters", "harbour"), ("clusters", "quay"), ("staging", "harbour")];
        for (namespace, cluster) in keys {
            table.add_row([namespace, cluster, "True", "01234567", "2026-12-24", "AsExpected"]);
        }
        for width in 40..200 {
            let text = table.render(Some(width));
            for block in text.split("\n\n") {
                let lines: Vec<Vec<_>> =
                    block.lines().map(|line| line.split_whitespace().collect()).collect();
                assert_eq!(lines[0][..2], ["NAMESPACE", "HOSTEDCLUSTER"], "{width}:\n{text}");
                let found = lines[1..].iter().map(|words| (words[0], words[1]));
                assert!(found.eq(keys), "{width}:\n{text}");
            }
        }
    }

    #[test]
    fn names_are_whole_in_every_width() {
        let mut table = TextTable::new([(Name, "NAME"), (Name, "RESULT"), (Text, "NOTE")]);
        table.add_row(["a-name-without-an-end", "unchanged", "a note"]);
        for width in 0..80 {
            let text = table.render(Some(width));
            assert!(text.contains("a-name-without-an-end") && text.contains("unchanged"), "{text}");
        }
    }
}
