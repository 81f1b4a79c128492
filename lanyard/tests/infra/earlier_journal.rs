//! A journal that an earlier release wrote, and the same journal for the resources of this local Azure.

use std::collections::BTreeMap;

use lanyard_azure::PendingOperation;
use serde_json::Value;

/// How far the last write of a resource got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastWrite {
    /// The resource exists.
    Recorded,
    /// The resource was removed.
    Removed,
    /// The journal does not record the result of the creation.
    CreationSent,
    /// The journal does not record the result of the deletion.
    DeletionSent,
    /// Azure works on the write.
    Accepted,
}

/// The entries of a journal.
pub(crate) struct EarlierJournal {
    entries: Vec<Value>,
}

impl EarlierJournal {
    pub(crate) fn new(content: &str) -> Self {
        Self { entries: parse_lines(content) }
    }

    /// The last write of each resource by its key.
    pub(crate) fn last_writes(&self) -> BTreeMap<String, LastWrite> {
        let mut writes = BTreeMap::new();
        for entry in &self.entries {
            let Some(key) = key_of(entry) else { continue };
            let last = match entry["entry"].as_str().unwrap() {
                "recorded" => LastWrite::Recorded,
                "removed" => LastWrite::Removed,
                "accepted" => LastWrite::Accepted,
                _ if entry["write"] == "delete" => LastWrite::DeletionSent,
                _ => LastWrite::CreationSent,
            };
            writes.insert(key.to_owned(), last);
        }
        writes
    }

    /// The content of the journal with the values that this local Azure assigned: the times, creators and ids of the
    /// resources of `current`, and the URLs of `operations`. Everything else stays as the earlier release wrote it.
    pub(crate) fn with_values_of(
        &self,
        current: &str,
        operations: &BTreeMap<String, PendingOperation>,
    ) -> String {
        let current = parse_lines(current);
        let mut marks: BTreeMap<&str, &Value> = BTreeMap::new();
        for entry in &current {
            if let (Some(key), Some(created)) = (key_of(entry), entry.get("created")) {
                marks.insert(key, created);
            }
        }
        let mut assigned_ids = Vec::new();
        let replace = |mut entry: Value| {
            let key = key_of(&entry).unwrap_or_default().to_owned();
            if let (Some(created), Some(mark)) = (entry.get_mut("created"), marks.get(&*key)) {
                for (name, value) in created.as_object_mut().unwrap() {
                    let assigned = mark[name].clone();
                    if name == "id" {
                        assigned_ids.push((text_of(value), text_of(&assigned)));
                    }
                    *value = assigned;
                }
            }
            if let (Some(operation), Some(pending)) =
                (entry.get_mut("operation"), operations.get(&key))
            {
                let pending = serde_json::to_value(pending).unwrap();
                operation["source"]["url"] = pending["source"]["url"].clone();
            }
            entry.to_string() + "\n"
        };
        let mut content: String = self.entries.iter().cloned().map(replace).collect();
        // Bodies contain the ids, too.
        for (earlier, assigned) in assigned_ids {
            content = content.replace(&earlier, &assigned);
        }
        content
    }
}

fn parse_lines(content: &str) -> Vec<Value> {
    content.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn key_of(entry: &Value) -> Option<&str> {
    entry["key"].as_str()
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
