//! The policy that matches what was observed.
//!
//! It allows what the trail says was read through shared identities, and nothing else: every
//! pattern is a plain name. Rules are joined only where the product of their parts is exactly what
//! was seen.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_vocabulary::VaultName;
use serde_json::Value;

use crate::audit::{AuditEvent, AuditRecord, AuditVerdict, ObjectRead};
use crate::policy::NodePolicy;
use crate::policy::access::{SharedIdentity, VaultAccess, VaultObjectName};
use crate::policy::pattern::{IdentityPattern, NameKind, NamePattern, ObjectPattern};
use crate::policy::rule::{PolicyRule, VaultGrant};

/// What an audit trail says was read through shared identities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedReads {
    accesses: BTreeSet<VaultAccess>,
    /// Lines that are no records of a trail, by their numbers from 1.
    unreadable: Vec<usize>,
    lines: usize,
}

/// A policy, and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySuggestion {
    /// The policy.
    pub policy: NodePolicy,
    /// How many distinct reads it allows.
    pub accesses: usize,
    /// The numbers of the lines that could not be read, from 1 over all files.
    pub unreadable: Vec<usize>,
}

impl ObservedReads {
    /// Adds the lines of a trail. Events other than reads add nothing, and neither do reads that
    /// Azure alone judged.
    pub fn add_lines<'a>(&mut self, lines: impl IntoIterator<Item = &'a str>) {
        for line in lines {
            self.lines += 1;
            if line.trim().is_empty() {
                continue;
            }
            match parse_line(line) {
                Ok(access) => self.accesses.extend(access),
                Err(NotAuditRecord) => self.unreadable.push(self.lines),
            }
        }
    }

    /// Whether no read through a shared identity was seen.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// What was read.
    pub const fn accesses(&self) -> &BTreeSet<VaultAccess> {
        &self.accesses
    }

    /// The smallest policy of plain names that this knows to build.
    pub fn suggest(self) -> PolicySuggestion {
        let accesses = self.accesses.len();
        let policy = NodePolicy { rules: build_rules(self.accesses) };
        PolicySuggestion { policy, accesses, unreadable: self.unreadable }
    }
}

impl FromIterator<VaultAccess> for ObservedReads {
    fn from_iter<T: IntoIterator<Item = VaultAccess>>(accesses: T) -> Self {
        Self { accesses: accesses.into_iter().collect(), ..Self::default() }
    }
}

/// A line is not a record of a trail.
struct NotAuditRecord;

/// The read that a line records, if it records one through a shared identity.
fn parse_line(line: &str) -> Result<Option<VaultAccess>, NotAuditRecord> {
    let value: Value = serde_json::from_str(line).map_err(|_error| NotAuditRecord)?;
    // Newer versions may write events that this one does not know.
    if value.get("event").and_then(Value::as_str).ok_or(NotAuditRecord)? != "read" {
        return Ok(None);
    }
    let record: AuditRecord = serde_json::from_value(value).map_err(|_error| NotAuditRecord)?;
    match record.event {
        AuditEvent::Read(read) if read.verdict != AuditVerdict::Azure => {
            access_from_read(read).map(Some).ok_or(NotAuditRecord)
        }
        _ => Ok(None),
    }
}

fn access_from_read(read: ObjectRead) -> Option<VaultAccess> {
    // A name that is no name would become a pattern when it is written.
    NamePattern::parse(&read.by.namespace, NameKind::Namespace).ok()?;
    NamePattern::parse(&read.by.class, NameKind::Class).ok()?;
    let plain = |text: &str| !text.contains('*');
    if !plain(&read.by.namespace) || !plain(&read.by.class) {
        return None;
    }
    Some(VaultAccess {
        namespace: read.by.namespace,
        class: read.by.class,
        identity: SharedIdentity::try_from(read.identity?).ok()?,
        vault: read.vault.parse::<VaultName>().ok()?,
        object: VaultObjectName::parse(&read.object)?,
    })
}

/// What may be read: vaults and their objects. Vaults and objects compare without case, so one
/// spelling stands for all.
type ObservedGrants = BTreeMap<String, BTreeSet<ObjectPattern>>;

/// Joins what was read into rules, part by part. Joining is exact: only parts with equal rests are
/// joined, so a rule's product is made of nothing but what was seen.
fn build_rules(accesses: BTreeSet<VaultAccess>) -> Vec<PolicyRule> {
    let mut seen: BTreeMap<(String, SharedIdentity, String), ObservedGrants> = BTreeMap::new();
    for access in accesses {
        let object = ObjectPattern::exactly(
            access.object.kind,
            &access.object.name.as_str().to_ascii_lowercase(),
        );
        seen.entry((access.namespace, access.identity, access.class))
            .or_default()
            .entry(access.vault.as_str().to_ascii_lowercase())
            .or_default()
            .insert(object);
    }
    let by_class = group_parts(
        seen.into_iter()
            .map(|((namespace, identity, class), grants)| (class, (namespace, identity, grants))),
    );
    let by_identity =
        group_parts(by_class.into_iter().map(|((namespace, identity, grants), classes)| {
            (identity, (namespace, classes, grants))
        }));
    let by_namespace =
        group_parts(by_identity.into_iter().map(|((namespace, classes, grants), identities)| {
            (namespace, (classes, identities, grants))
        }));
    let mut rules: Vec<_> = by_namespace
        .into_iter()
        .map(|((classes, identities, grants), namespaces)| {
            (namespaces, classes, identities, grants)
        })
        .collect();
    rules.sort();
    rules
        .into_iter()
        .enumerate()
        .map(|(index, (namespaces, classes, identities, grants))| PolicyRule {
            name: format!("observed-{}", index + 1),
            namespaces: literal_patterns(namespaces),
            classes: Some(literal_patterns(classes)),
            identities: Some(identities.into_iter().map(IdentityPattern::Exactly).collect()),
            vaults: grants.into_iter().map(vault_grant).collect(),
        })
        .collect()
}

/// Collects the parts that have the same rest.
fn group_parts<P: Ord, R: Ord>(pairs: impl Iterator<Item = (P, R)>) -> BTreeMap<R, BTreeSet<P>> {
    let mut joined: BTreeMap<R, BTreeSet<P>> = BTreeMap::new();
    for (part, rest) in pairs {
        joined.entry(rest).or_default().insert(part);
    }
    joined
}

fn literal_patterns(names: BTreeSet<String>) -> Vec<NamePattern> {
    names.into_iter().map(NamePattern::literal).collect()
}

fn vault_grant((vault, objects): (String, BTreeSet<ObjectPattern>)) -> VaultGrant {
    VaultGrant { name: NamePattern::literal(vault), objects: objects.into_iter().collect() }
}
