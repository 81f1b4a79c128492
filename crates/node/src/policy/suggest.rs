//! Suggests a policy from the observed reads.
//!
//! The policy allows the reads through shared identities that the audit trail records, and no others: every
//! pattern is a plain name. Rules are merged only if the product of their parts equals the observed reads.

use std::collections::{BTreeMap, BTreeSet};

use lanyard_vocabulary::VaultName;
use serde_json::Value;

use crate::audit::{AuditEvent, AuditRecord, AuditVerdict, ObjectRead};
use crate::policy::NodePolicy;
use crate::policy::access::{SharedIdentity, VaultAccess, VaultObjectName};
use crate::policy::pattern::{IdentityPattern, NameKind, NamePattern, ObjectPattern};
use crate::policy::rule::{PolicyRule, VaultGrant};

/// The reads through shared identities that an audit trail records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedReads {
    accesses: BTreeSet<VaultAccess>,
    /// The numbers of the lines that are not audit records, from 1.
    unreadable: Vec<usize>,
    lines: usize,
}

/// A suggested policy, and the number of reads behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicySuggestion {
    pub policy: NodePolicy,
    /// The number of distinct reads that the policy allows.
    pub accesses: usize,
    /// The numbers of the lines that could not be parsed, from 1 over all files.
    pub unreadable: Vec<usize>,
}

impl ObservedReads {
    /// Adds the lines of an audit trail. Events other than reads are ignored, and so are reads that Azure
    /// alone authorizes.
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

    /// Returns whether no read through a shared identity was observed.
    pub fn is_empty(&self) -> bool {
        self.accesses.is_empty()
    }

    /// Returns the observed reads.
    pub const fn accesses(&self) -> &BTreeSet<VaultAccess> {
        &self.accesses
    }

    /// Builds the smallest policy of plain names that the merge finds.
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

/// The line is not an audit record.
struct NotAuditRecord;

/// Returns the read of a line, if it records one through a shared identity.
fn parse_line(line: &str) -> Result<Option<VaultAccess>, NotAuditRecord> {
    let value: Value = serde_json::from_str(line).map_err(|_error| NotAuditRecord)?;
    // Newer versions may write events that this version does not know.
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
    // An invalid name would become a pattern in the written policy.
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

/// The vaults and their objects. Both compare without case, so one spelling stands for all.
type ObservedGrants = BTreeMap<String, BTreeSet<ObjectPattern>>;

/// Merges the reads into rules, part by part. Merging is exact: only parts whose other parts are equal are
/// merged, so that the product of a rule contains observed reads only.
fn build_rules(accesses: BTreeSet<VaultAccess>) -> Vec<PolicyRule> {
    let mut grants_by_subject: BTreeMap<(String, SharedIdentity, String), ObservedGrants> =
        BTreeMap::new();
    for access in accesses {
        let object = ObjectPattern::exactly(
            access.object.kind,
            &access.object.name.as_str().to_ascii_lowercase(),
        );
        grants_by_subject
            .entry((access.namespace, access.identity, access.class))
            .or_default()
            .entry(access.vault.as_str().to_ascii_lowercase())
            .or_default()
            .insert(object);
    }
    let by_class = group_parts(
        grants_by_subject
            .into_iter()
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

/// Groups the parts whose other parts are equal.
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
