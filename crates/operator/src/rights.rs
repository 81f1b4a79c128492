//! What the operator may do at the Kubernetes API: no more than it does.
//!
//! One table. The chart's roles are checked against it, and tests run with nothing else.

use crate::settings::Role;

/// A right of a ClusterRole, or of the Role in the operator's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Right {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource, with a subresource after a `/`.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// Only objects of these names; all where there is none.
    pub names: &'static [&'static str],
    /// Who needs it.
    pub needed: Needed,
}

/// Who needs a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needed {
    /// Every role.
    Always,
    /// [`Role::All`].
    ByAll,
    /// [`Role::IdentityOnly`].
    ByIdentityOnly,
    /// Whoever shares the clusters with other replicas; in the operator's namespace alone.
    ByElection,
    /// [`Role::All`], where the API server asks whoever names an owner that cannot be deleted first
    /// for a right to that owner: the admission plugin `OwnerReferencesPermissionEnforcement`.
    ByOwners,
}

const HYPERSHIFT: &str = "hypershift.openshift.io";
const SECRETS_STORE: &str = "secrets-store.csi.x-k8s.io";
/// What is watched: it is listed first.
const WATCH: &[&str] = &["list", "watch"];
const LIST: &[&str] = &["list"];
/// What is watched, applied, read again (by a list) and pruned. The API server asks for `create` too,
/// where what is applied is not there.
const OWN: &[&str] = &["create", "delete", "list", "patch", "watch"];

const fn right(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    needed: Needed,
) -> Right {
    Right { group, resource, verbs, names: &[], needed }
}

/// Every right.
pub const RIGHTS: &[Right] = &[
    right(HYPERSHIFT, "hostedclusters", WATCH, Needed::Always),
    right(HYPERSHIFT, "hostedclusters", &["patch"], Needed::ByAll),
    right(HYPERSHIFT, "hostedclusters/status", &["patch"], Needed::ByAll),
    right(HYPERSHIFT, "hostedcontrolplanes", OWN, Needed::ByAll),
    right(HYPERSHIFT, "hostedcontrolplanes/finalizers", &["update"], Needed::ByOwners),
    right(
        "lanyard.dev",
        "hostedclusteridentities",
        &["create", "list", "patch", "watch"],
        Needed::Always,
    ),
    right("lanyard.dev", "hostedclusteridentities/status", &["patch"], Needed::Always),
    right("", "pods", WATCH, Needed::Always),
    right(SECRETS_STORE, "secretproviderclasspodstatuses", WATCH, Needed::Always),
    right(SECRETS_STORE, "secretproviderclasses", WATCH, Needed::ByIdentityOnly),
    right(SECRETS_STORE, "secretproviderclasses", OWN, Needed::ByAll),
    right("", "events", &["create"], Needed::Always),
    right("", "namespaces", OWN, Needed::ByAll),
    right("", "serviceaccounts", OWN, Needed::ByAll),
    right("", "configmaps", OWN, Needed::ByAll),
    right("", "secrets", OWN, Needed::ByAll),
    right("apps", "deployments", OWN, Needed::ByAll),
    // The way to private vaults, which HyperShift makes: it is asked for by its name.
    Right {
        group: "",
        resource: "services",
        verbs: WATCH,
        names: &[lanyard_desired::workload::PRIVATE_ROUTER],
        needed: Needed::ByAll,
    },
    right("rbac.authorization.k8s.io", "rolebindings", OWN, Needed::ByAll),
    // Canaries get this role and no other one.
    Right {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        verbs: &["bind"],
        names: &[lanyard_desired::workload::CANARY_ROLE],
        needed: Needed::ByAll,
    },
    right("infrastructure.cluster.x-k8s.io", "azureclusteridentities", OWN, Needed::ByAll),
    // What other operators end is asked for at the end of a cluster.
    right(HYPERSHIFT, "nodepools", LIST, Needed::ByAll),
    right("cluster.x-k8s.io", "clusters", LIST, Needed::ByAll),
    right("infrastructure.cluster.x-k8s.io", "azuremachines", LIST, Needed::ByAll),
    right(
        "coordination.k8s.io",
        "leases",
        &["create", "delete", "list", "patch"],
        Needed::ByElection,
    ),
];

/// The rights of a role in all namespaces.
pub fn cluster_rights(role: Role) -> impl Iterator<Item = &'static Right> {
    RIGHTS.iter().filter(move |right| match right.needed {
        Needed::Always => true,
        Needed::ByAll => role == Role::All,
        Needed::ByIdentityOnly => role == Role::IdentityOnly,
        Needed::ByElection | Needed::ByOwners => false,
    })
}

/// The rights in all namespaces that [`Role::All`] needs beside those where owners are enforced.
pub fn owner_rights() -> impl Iterator<Item = &'static Right> {
    RIGHTS.iter().filter(|right| right.needed == Needed::ByOwners)
}

/// The rights in the operator's own namespace, where there are several replicas.
pub fn namespace_rights() -> impl Iterator<Item = &'static Right> {
    RIGHTS.iter().filter(|right| right.needed == Needed::ByElection)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lanyard_desired::OwnedKind;

    use super::*;
    use crate::kinds::WatchedKind;

    fn allowed(role: Role, verb: &str) -> BTreeSet<(String, String)> {
        cluster_rights(role)
            .filter(|right| right.verbs.contains(&verb))
            .map(|right| (right.group.to_owned(), right.resource.to_owned()))
            .collect()
    }

    #[test]
    fn whatever_is_watched_may_be_watched() {
        for role in [Role::All, Role::IdentityOnly] {
            let watched: BTreeSet<_> = WatchedKind::of(role)
                .into_iter()
                .map(|kind| kind.subject(role).resource)
                .map(|resource| (resource.group, resource.plural))
                .collect();
            assert_eq!(allowed(role, "watch"), watched);
            assert!(allowed(role, "list").is_superset(&watched));
        }
    }

    #[test]
    fn every_kind_that_is_written_may_be_applied_and_pruned() {
        for verb in ["create", "patch", "delete"] {
            let allowed = allowed(Role::All, verb);
            for kind in OwnedKind::ALL {
                let facts = kind.facts();
                let group = facts.api_version.split_once('/').map_or("", |(group, _)| group);
                assert!(allowed.contains(&(group.to_owned(), facts.plural.to_owned())), "{kind:?}");
            }
        }
    }

    #[test]
    fn beside_another_operator_nothing_is_written_but_the_status_and_events() {
        let ours = |names: &[(&str, &str)]| -> BTreeSet<(String, String)> {
            names.iter().map(|(group, name)| ((*group).to_owned(), (*name).to_owned())).collect()
        };
        let identities = ("lanyard.dev", "hostedclusteridentities");
        let role = Role::IdentityOnly;
        assert_eq!(allowed(role, "create"), ours(&[identities, ("", "events")]));
        let status = ("lanyard.dev", "hostedclusteridentities/status");
        assert_eq!(allowed(role, "patch"), ours(&[identities, status]));
        for verb in ["delete", "update", "get", "bind", "*", "escalate"] {
            assert_eq!(allowed(role, verb), BTreeSet::new(), "{verb}");
        }
    }

    #[test]
    fn nothing_is_allowed_by_a_star() {
        for right in RIGHTS {
            let words = right.verbs.iter().chain([&right.group, &right.resource]);
            assert!(words.into_iter().all(|word| !word.contains('*')), "{right:?}");
        }
    }
}
