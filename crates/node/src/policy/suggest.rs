//! The policy that matches what was observed.
//!
//! It allows what the trail says was read through shared identities, and nothing else: every
//! pattern is a plain name. Rules are joined only where the product of their parts is exactly what
//! was seen.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_vocabulary::VaultName;
use serde_json::Value;

use crate::audit::{AuditEvent, AuditRecord, Judgement, ObjectRead};
use crate::policy::Policy;
use crate::policy::access::{Access, SharedIdentity, VaultObjectName};
use crate::policy::pattern::{IdentityPattern, NameKind, ObjectPattern, Pattern};
use crate::policy::rule::{Rule, VaultGrant};

/// What an audit trail says was read through shared identities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedReads {
    accesses: BTreeSet<Access>,
    /// Lines that are no records of a trail, by their numbers from 1.
    unreadable: Vec<usize>,
    lines: usize,
}

/// A policy, and what it was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suggestion {
    /// The policy.
    pub policy: Policy,
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
                Err(NoRecord) => self.unreadable.push(self.lines),
            }
        }
    }

    /// Whether no read through a shared identity was seen.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// What was read.
    pub const fn accesses(&self) -> &BTreeSet<Access> {
        &self.accesses
    }

    /// The smallest policy of plain names that this knows to build.
    pub fn suggest(self) -> Suggestion {
        let accesses = self.accesses.len();
        let policy = Policy { rules: rules(self.accesses) };
        Suggestion { policy, accesses, unreadable: self.unreadable }
    }
}

impl FromIterator<Access> for ObservedReads {
    fn from_iter<T: IntoIterator<Item = Access>>(accesses: T) -> Self {
        Self { accesses: accesses.into_iter().collect(), ..Self::default() }
    }
}

/// A line is not a record of a trail.
struct NoRecord;

/// The read that a line records, if it records one through a shared identity.
fn parse_line(line: &str) -> Result<Option<Access>, NoRecord> {
    let value: Value = serde_json::from_str(line).map_err(|_error| NoRecord)?;
    // Newer versions may write events that this one does not know.
    if value.get("event").and_then(Value::as_str).ok_or(NoRecord)? != "read" {
        return Ok(None);
    }
    let record: AuditRecord = serde_json::from_value(value).map_err(|_error| NoRecord)?;
    match record.event {
        AuditEvent::Read(read) if read.judgement != Judgement::Azure => {
            access_of(read).map(Some).ok_or(NoRecord)
        }
        _ => Ok(None),
    }
}

fn access_of(read: ObjectRead) -> Option<Access> {
    // A name that is no name would become a pattern when it is written.
    Pattern::parse(&read.by.namespace, NameKind::Namespace).ok()?;
    Pattern::parse(&read.by.class, NameKind::Class).ok()?;
    let plain = |text: &str| !text.contains('*');
    if !plain(&read.by.namespace) || !plain(&read.by.class) {
        return None;
    }
    Some(Access {
        namespace: read.by.namespace,
        class: read.by.class,
        identity: SharedIdentity::try_from(read.identity?).ok()?,
        vault: read.vault.parse::<VaultName>().ok()?,
        object: VaultObjectName::parse(&read.object)?,
    })
}

/// What may be read: vaults and their objects. Vaults and objects compare without case, so one
/// spelling stands for all.
type Grants = BTreeMap<String, BTreeSet<ObjectPattern>>;

/// Joins what was read into rules, part by part. Joining is exact: only parts with equal rests are
/// joined, so a rule's product is made of nothing but what was seen.
fn rules(accesses: BTreeSet<Access>) -> Vec<Rule> {
    let mut seen: BTreeMap<(String, SharedIdentity, String), Grants> = BTreeMap::new();
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
    let by_class = joined(
        seen.into_iter()
            .map(|((namespace, identity, class), grants)| (class, (namespace, identity, grants))),
    );
    let by_identity =
        joined(by_class.into_iter().map(|((namespace, identity, grants), classes)| {
            (identity, (namespace, classes, grants))
        }));
    let by_namespace =
        joined(by_identity.into_iter().map(|((namespace, classes, grants), identities)| {
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
        .map(|(index, (namespaces, classes, identities, grants))| Rule {
            name: format!("observed-{}", index + 1),
            namespaces: plain(namespaces),
            classes: Some(plain(classes)),
            identities: Some(identities.into_iter().map(IdentityPattern::Only).collect()),
            vaults: grants.into_iter().map(grant).collect(),
        })
        .collect()
}

/// Collects the parts that have the same rest.
fn joined<P: Ord, R: Ord>(pairs: impl Iterator<Item = (P, R)>) -> BTreeMap<R, BTreeSet<P>> {
    let mut joined: BTreeMap<R, BTreeSet<P>> = BTreeMap::new();
    for (part, rest) in pairs {
        joined.entry(rest).or_default().insert(part);
    }
    joined
}

fn plain(names: BTreeSet<String>) -> Vec<Pattern> {
    names.into_iter().map(Pattern::plain).collect()
}

fn grant((vault, objects): (String, BTreeSet<ObjectPattern>)) -> VaultGrant {
    VaultGrant { name: Pattern::plain(vault), objects: objects.into_iter().collect() }
}
