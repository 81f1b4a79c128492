//! A plan as people read it.

use super::{Change, FieldPath};

/// The changes as lines: what would be done to which object, and why. Objects that stay are
/// counted.
pub fn plan_text(changes: &[Change]) -> String {
    let told = changes.iter().filter(|change| !matches!(change, Change::Keep { .. }));
    let mut lines: Vec<_> = told.map(line).collect();
    let count =
        |wanted: fn(&Change) -> bool| changes.iter().filter(|change| wanted(change)).count();
    lines.push(format!(
        "{} to create, {} to change, {} to delete, {} as they should be",
        count(|change| matches!(change, Change::Create { .. })),
        count(|change| matches!(change, Change::Apply { .. })),
        count(|change| matches!(change, Change::Prune { .. })),
        count(|change| matches!(change, Change::Keep { .. })),
    ));
    let foreign = count(|change| matches!(change, Change::Foreign { .. }));
    if foreign > 0 {
        lines.push(format!("{foreign} of others, in the way"));
    }
    lines.join("\n") + "\n"
}

fn line(change: &Change) -> String {
    let key = change.key();
    match change {
        Change::Create { object } => {
            format!("create {key} as {}", object.writer.field_manager())
        }
        Change::Apply { object, why, foreign, .. } => {
            let mut line = format!("change {key} as {}", object.writer.field_manager());
            for (word, paths) in [("set", why), ("remove", foreign)] {
                line.extend(paths.iter().map(|path: &FieldPath| format!("\n  {word} {path}")));
            }
            line
        }
        Change::Foreign { why, .. } => {
            let mut line = format!("leave {key}, which somebody else made");
            line.extend(why.iter().map(|path| format!("\n  differs in {path}")));
            line
        }
        Change::Prune { .. } => format!("delete {key}"),
        Change::Keep { .. } => format!("keep {key}"),
    }
}
