//! Text output of a plan.

use super::{FieldPath, ObjectChange};

/// Formats the changes as lines: the operation on each object, and the reason. Unchanged objects
/// are only counted.
pub fn format_plan(changes: &[ObjectChange]) -> String {
    let reported =
        changes.iter().filter(|change| !matches!(change, ObjectChange::Unchanged { .. }));
    let mut lines: Vec<_> = reported.map(format_change).collect();
    let count =
        |wanted: fn(&ObjectChange) -> bool| changes.iter().filter(|change| wanted(change)).count();
    lines.push(format!(
        "{} to create, {} to change, {} to delete, {} unchanged",
        count(|change| matches!(change, ObjectChange::Create { .. })),
        count(|change| matches!(change, ObjectChange::Apply { .. })),
        count(|change| matches!(change, ObjectChange::Prune { .. })),
        count(|change| matches!(change, ObjectChange::Unchanged { .. })),
    ));
    let foreign = count(|change| matches!(change, ObjectChange::Unowned { .. }));
    if foreign > 0 {
        lines.push(format!("{foreign} of other managers, skipped"));
    }
    lines.join("\n") + "\n"
}

fn format_change(change: &ObjectChange) -> String {
    let key = change.key();
    match change {
        ObjectChange::Create { object } => {
            format!("create {key} as {}", object.writer.field_manager())
        }
        ObjectChange::Apply { object, differing_fields: why, unowned_fields: foreign, .. } => {
            let mut line = format!("change {key} as {}", object.writer.field_manager());
            for (word, paths) in [("set", why), ("remove", foreign)] {
                line.extend(paths.iter().map(|path: &FieldPath| format!("\n  {word} {path}")));
            }
            line
        }
        ObjectChange::Unowned { differing_fields: why, .. } => {
            let mut line = format!("leave {key}, which another manager created");
            line.extend(why.iter().map(|path| format!("\n  differs in {path}")));
            line
        }
        ObjectChange::Prune { .. } => format!("delete {key}"),
        ObjectChange::Unchanged { .. } => format!("keep {key}"),
    }
}
