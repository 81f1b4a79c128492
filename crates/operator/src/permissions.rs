//! What the operator may do at the Kubernetes API: no more than it does.
//!
//! One table. The chart's roles are checked against it, and tests run with nothing else.

use crate::settings::OperatorRole;

/// A right of a ClusterRole, or of the Role in the operator's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiPermission {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource, with a subresource after a `/`.
    pub resource: &'static str,
    /// The verbs.
    pub verbs: &'static [&'static str],
    /// Only objects of these names; all where there is none.
    pub names: &'static [&'static str],
    /// Who needs it.
    pub required_by: RequiredBy,
}

/// Who needs a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredBy {
    /// Every role.
    Always,
    /// [`OperatorRole::All`].
    RoleAll,
    /// [`OperatorRole::IdentityOnly`].
    RoleIdentityOnly,
    /// Whoever shares the clusters with other replicas; in the operator's namespace alone.
    LeaderElection,
    /// [`OperatorRole::All`], where the API server asks whoever names an owner that cannot be deleted first
    /// for a right to that owner: the admission plugin `OwnerReferencesPermissionEnforcement`.
    OwnerEnforcement,
}

const HYPERSHIFT: &str = "hypershift.openshift.io";
const SECRETS_STORE: &str = "secrets-store.csi.x-k8s.io";
/// What is watched: it is listed first.
const WATCH: &[&str] = &["list", "watch"];
const LIST: &[&str] = &["list"];
/// What is watched, applied, read again (by a list) and pruned. The API server asks for `create` too,
/// where what is applied is not there.
const MANAGE: &[&str] = &["create", "delete", "list", "patch", "watch"];

const fn permission(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    needed: RequiredBy,
) -> ApiPermission {
    ApiPermission { group, resource, verbs, names: &[], required_by: needed }
}

/// Every right.
pub const PERMISSIONS: &[ApiPermission] = &[
    permission(HYPERSHIFT, "hostedclusters", WATCH, RequiredBy::Always),
    permission(HYPERSHIFT, "hostedclusters", &["patch"], RequiredBy::RoleAll),
    permission(HYPERSHIFT, "hostedclusters/status", &["patch"], RequiredBy::RoleAll),
    permission(HYPERSHIFT, "hostedcontrolplanes", MANAGE, RequiredBy::RoleAll),
    permission(
        HYPERSHIFT,
        "hostedcontrolplanes/finalizers",
        &["update"],
        RequiredBy::OwnerEnforcement,
    ),
    permission(
        "lanyard.dev",
        "hostedclusteridentities",
        &["create", "list", "patch", "watch"],
        RequiredBy::Always,
    ),
    permission("lanyard.dev", "hostedclusteridentities/status", &["patch"], RequiredBy::Always),
    permission("", "pods", WATCH, RequiredBy::Always),
    permission(SECRETS_STORE, "secretproviderclasspodstatuses", WATCH, RequiredBy::Always),
    permission(SECRETS_STORE, "secretproviderclasses", WATCH, RequiredBy::RoleIdentityOnly),
    permission(SECRETS_STORE, "secretproviderclasses", MANAGE, RequiredBy::RoleAll),
    permission("", "events", &["create"], RequiredBy::Always),
    permission("", "namespaces", MANAGE, RequiredBy::RoleAll),
    permission("", "serviceaccounts", MANAGE, RequiredBy::RoleAll),
    permission("", "configmaps", MANAGE, RequiredBy::RoleAll),
    permission("", "secrets", MANAGE, RequiredBy::RoleAll),
    permission("apps", "deployments", MANAGE, RequiredBy::RoleAll),
    // The way to private vaults, which HyperShift makes: it is asked for by its name.
    ApiPermission {
        group: "",
        resource: "services",
        verbs: WATCH,
        names: &[lanyard_desired::workload::PRIVATE_ROUTER_SERVICE],
        required_by: RequiredBy::RoleAll,
    },
    permission("rbac.authorization.k8s.io", "rolebindings", MANAGE, RequiredBy::RoleAll),
    // Canaries get this role and no other one.
    ApiPermission {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        verbs: &["bind"],
        names: &[lanyard_desired::workload::CANARY_CLUSTER_ROLE],
        required_by: RequiredBy::RoleAll,
    },
    permission(
        "infrastructure.cluster.x-k8s.io",
        "azureclusteridentities",
        MANAGE,
        RequiredBy::RoleAll,
    ),
    // What other operators end is asked for at the end of a cluster.
    permission(HYPERSHIFT, "nodepools", LIST, RequiredBy::RoleAll),
    permission("cluster.x-k8s.io", "clusters", LIST, RequiredBy::RoleAll),
    permission("infrastructure.cluster.x-k8s.io", "azuremachines", LIST, RequiredBy::RoleAll),
    permission(
        "coordination.k8s.io",
        "leases",
        &["create", "delete", "list", "patch"],
        RequiredBy::LeaderElection,
    ),
];

/// The rights of a role in all namespaces.
pub fn cluster_permissions(role: OperatorRole) -> impl Iterator<Item = &'static ApiPermission> {
    PERMISSIONS.iter().filter(move |right| match right.required_by {
        RequiredBy::Always => true,
        RequiredBy::RoleAll => role == OperatorRole::All,
        RequiredBy::RoleIdentityOnly => role == OperatorRole::IdentityOnly,
        RequiredBy::LeaderElection | RequiredBy::OwnerEnforcement => false,
    })
}

/// The rights in all namespaces that [`OperatorRole::All`] needs beside those where owners are enforced.
pub fn owner_permissions() -> impl Iterator<Item = &'static ApiPermission> {
    PERMISSIONS.iter().filter(|right| right.required_by == RequiredBy::OwnerEnforcement)
}

/// The rights in the operator's own namespace, where there are several replicas.
pub fn namespace_permissions() -> impl Iterator<Item = &'static ApiPermission> {
    PERMISSIONS.iter().filter(|right| right.required_by == RequiredBy::LeaderElection)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lanyard_desired::OwnedKind;

    use super::*;
    use crate::watched_kinds::WatchedKind;

    fn allowed_resources(role: OperatorRole, verb: &str) -> BTreeSet<(String, String)> {
        cluster_permissions(role)
            .filter(|right| right.verbs.contains(&verb))
            .map(|right| (right.group.to_owned(), right.resource.to_owned()))
            .collect()
    }

    #[test]
    fn every_watched_kind_has_watch_permission() {
        for role in [OperatorRole::All, OperatorRole::IdentityOnly] {
            let watched: BTreeSet<_> = WatchedKind::of(role)
                .into_iter()
                .map(|kind| kind.watched_resource(role).resource)
                .map(|resource| (resource.group, resource.plural))
                .collect();
            assert_eq!(allowed_resources(role, "watch"), watched);
            assert!(allowed_resources(role, "list").is_superset(&watched));
        }
    }

    #[test]
    fn every_owned_kind_has_write_permissions() {
        for verb in ["create", "patch", "delete"] {
            let allowed = allowed_resources(OperatorRole::All, verb);
            for kind in OwnedKind::ALL {
                let facts = kind.info();
                let group = facts.api_version.split_once('/').map_or("", |(group, _)| group);
                assert!(allowed.contains(&(group.to_owned(), facts.plural.to_owned())), "{kind:?}");
            }
        }
    }

    #[test]
    fn identity_only_role_writes_only_status_and_events() {
        let ours = |names: &[(&str, &str)]| -> BTreeSet<(String, String)> {
            names.iter().map(|(group, name)| ((*group).to_owned(), (*name).to_owned())).collect()
        };
        let identities = ("lanyard.dev", "hostedclusteridentities");
        let role = OperatorRole::IdentityOnly;
        assert_eq!(allowed_resources(role, "create"), ours(&[identities, ("", "events")]));
        let status = ("lanyard.dev", "hostedclusteridentities/status");
        assert_eq!(allowed_resources(role, "patch"), ours(&[identities, status]));
        for verb in ["delete", "update", "get", "bind", "*", "escalate"] {
            assert_eq!(allowed_resources(role, verb), BTreeSet::new(), "{verb}");
        }
    }

    #[test]
    fn no_permission_uses_a_wildcard() {
        for right in PERMISSIONS {
            let words = right.verbs.iter().chain([&right.group, &right.resource]);
            assert!(words.into_iter().all(|word| !word.contains('*')), "{right:?}");
        }
    }
}
