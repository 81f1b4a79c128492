//! The permissions of the operator in the Kubernetes API, without any unused one.
//!
//! Tests check the chart's roles against this table, and run with these permissions only.

use crate::settings::OperatorRole;

/// A rule of a ClusterRole, or of the Role in the operator's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiPermission {
    /// The API group; empty for the core.
    pub group: &'static str,
    /// The resource, with a subresource after a `/`.
    pub resource: &'static str,
    pub verbs: &'static [&'static str],
    /// The `resourceNames`; all objects if empty.
    pub names: &'static [&'static str],
    /// The configurations that need it.
    pub required_by: RequiredBy,
}

/// The configurations of the operator that need a permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequiredBy {
    /// Every configuration.
    Always,
    /// [`OperatorRole::All`].
    RoleAll,
    /// [`OperatorRole::All`]; only in the namespaces of control planes, by [`CONTROL_PLANE_CLUSTER_ROLE`].
    ControlPlaneNamespace,
    /// Leader election with several replicas; only in the operator's namespace.
    LeaderElection,
    /// The same as [`Self::ControlPlaneNamespace`], on API servers with the admission plugin
    /// `OwnerReferencesPermissionEnforcement`: a client that sets `blockOwnerDeletion` needs a permission
    /// for the owner.
    OwnerEnforcement,
}

/// The ClusterRole with the permissions in the namespace of a control plane. The operator binds itself to it in
/// each of these namespaces, so a cluster can have only one such ClusterRole.
pub const CONTROL_PLANE_CLUSTER_ROLE: &str = "lanyard-control-plane";

const HYPERSHIFT: &str = "hypershift.openshift.io";
const SECRETS_STORE: &str = "secrets-store.csi.x-k8s.io";
const CLUSTER_API_AZURE: &str = "infrastructure.cluster.x-k8s.io";
/// For a watched resource, which is listed first.
const WATCH: &[&str] = &["list", "watch"];
const LIST: &[&str] = &["list"];
/// For a resource that is applied and pruned. The API server requires `create` for an apply that creates the
/// object.
const WRITE: &[&str] = &["create", "delete", "patch"];
/// For a resource that is watched, read by lists, applied and pruned in any namespace.
const MANAGE: &[&str] = &["create", "delete", "list", "patch", "watch"];

const fn permission(
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    needed: RequiredBy,
) -> ApiPermission {
    ApiPermission { group, resource, verbs, names: &[], required_by: needed }
}

/// All permissions.
pub const PERMISSIONS: &[ApiPermission] = &[
    permission(HYPERSHIFT, "hostedclusters", WATCH, RequiredBy::Always),
    permission(HYPERSHIFT, "hostedclusters", &["patch"], RequiredBy::RoleAll),
    permission(HYPERSHIFT, "hostedclusters/status", &["patch"], RequiredBy::RoleAll),
    permission(HYPERSHIFT, "hostedcontrolplanes", WATCH, RequiredBy::RoleAll),
    permission(HYPERSHIFT, "hostedcontrolplanes", WRITE, RequiredBy::ControlPlaneNamespace),
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
    permission(SECRETS_STORE, "secretproviderclasses", WATCH, RequiredBy::Always),
    permission(SECRETS_STORE, "secretproviderclasses", WRITE, RequiredBy::ControlPlaneNamespace),
    permission("", "events", &["create"], RequiredBy::Always),
    permission("", "namespaces", MANAGE, RequiredBy::RoleAll),
    permission("", "serviceaccounts", WATCH, RequiredBy::RoleAll),
    permission("", "serviceaccounts", WRITE, RequiredBy::ControlPlaneNamespace),
    permission("", "configmaps", WATCH, RequiredBy::RoleAll),
    permission("", "configmaps", WRITE, RequiredBy::ControlPlaneNamespace),
    // RBAC cannot restrict a watch to the operator's label.
    permission("", "secrets", WATCH, RequiredBy::RoleAll),
    permission("", "secrets", WRITE, RequiredBy::ControlPlaneNamespace),
    permission("apps", "deployments", WATCH, RequiredBy::RoleAll),
    permission("apps", "deployments", WRITE, RequiredBy::ControlPlaneNamespace),
    // The private router, which HyperShift creates; the operator watches it by name.
    ApiPermission {
        group: "",
        resource: "services",
        verbs: WATCH,
        names: &[lanyard_desired::workload::PRIVATE_ROUTER_SERVICE],
        required_by: RequiredBy::RoleAll,
    },
    permission("rbac.authorization.k8s.io", "rolebindings", MANAGE, RequiredBy::RoleAll),
    // The operator asks whether its new RoleBinding already grants access.
    permission(
        "authorization.k8s.io",
        "selfsubjectaccessreviews",
        &["create"],
        RequiredBy::RoleAll,
    ),
    // The operator binds only these ClusterRoles: canaries to the first, itself to the second.
    ApiPermission {
        group: "rbac.authorization.k8s.io",
        resource: "clusterroles",
        verbs: &["bind"],
        names: &[lanyard_desired::workload::CANARY_CLUSTER_ROLE, CONTROL_PLANE_CLUSTER_ROLE],
        required_by: RequiredBy::RoleAll,
    },
    permission(CLUSTER_API_AZURE, "azureclusteridentities", WATCH, RequiredBy::RoleAll),
    permission(
        CLUSTER_API_AZURE,
        "azureclusteridentities",
        WRITE,
        RequiredBy::ControlPlaneNamespace,
    ),
    permission(CLUSTER_API_AZURE, "azureclusters", WATCH, RequiredBy::RoleAll),
    permission(CLUSTER_API_AZURE, "azureclusters", WRITE, RequiredBy::ControlPlaneNamespace),
    // Objects that other operators delete; listed during the deletion of a cluster.
    permission(HYPERSHIFT, "nodepools", LIST, RequiredBy::RoleAll),
    permission("cluster.x-k8s.io", "clusters", LIST, RequiredBy::RoleAll),
    permission(CLUSTER_API_AZURE, "azuremachines", LIST, RequiredBy::RoleAll),
    permission(
        "coordination.k8s.io",
        "leases",
        &["create", "delete", "list", "patch"],
        RequiredBy::LeaderElection,
    ),
];

/// The permissions of a role in all namespaces.
pub fn cluster_permissions(role: OperatorRole) -> impl Iterator<Item = &'static ApiPermission> {
    PERMISSIONS.iter().filter(move |right| match right.required_by {
        RequiredBy::Always => true,
        RequiredBy::RoleAll => role == OperatorRole::All,
        RequiredBy::ControlPlaneNamespace
        | RequiredBy::LeaderElection
        | RequiredBy::OwnerEnforcement => false,
    })
}

/// The permissions of [`OperatorRole::All`] in the namespaces of control planes.
pub fn control_plane_permissions() -> impl Iterator<Item = &'static ApiPermission> {
    PERMISSIONS.iter().filter(|right| right.required_by == RequiredBy::ControlPlaneNamespace)
}

/// The additional permissions of [`OperatorRole::All`] in the namespaces of control planes, on API servers that
/// enforce owner permissions.
pub fn owner_permissions() -> impl Iterator<Item = &'static ApiPermission> {
    PERMISSIONS.iter().filter(|right| right.required_by == RequiredBy::OwnerEnforcement)
}

/// The permissions in the operator's own namespace, needed with several replicas.
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
        resources_with_verb(cluster_permissions(role), verb)
    }

    fn resources_with_verb(
        permissions: impl Iterator<Item = &'static ApiPermission>,
        verb: &str,
    ) -> BTreeSet<(String, String)> {
        permissions
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
            let permissions =
                cluster_permissions(OperatorRole::All).chain(control_plane_permissions());
            let allowed = resources_with_verb(permissions, verb);
            for kind in OwnedKind::ALL {
                let info = kind.info();
                let group = info.api_version.split_once('/').map_or("", |(group, _)| group);
                assert!(allowed.contains(&(group.to_owned(), info.plural.to_owned())), "{kind:?}");
            }
        }
    }

    #[test]
    fn operator_writes_few_resources_in_all_namespaces() {
        let rbac = "rbac.authorization.k8s.io";
        let expected = |names: &[(&str, &str)]| -> BTreeSet<(String, String)> {
            names.iter().map(|(group, name)| ((*group).to_owned(), (*name).to_owned())).collect()
        };
        let (namespaces, bindings) = (("", "namespaces"), (rbac, "rolebindings"));
        let identities = ("lanyard.dev", "hostedclusteridentities");
        // The API server does not store reviews.
        let reviews = ("authorization.k8s.io", "selfsubjectaccessreviews");
        let role = OperatorRole::All;
        assert_eq!(
            allowed_resources(role, "create"),
            expected(&[namespaces, bindings, identities, ("", "events"), reviews])
        );
        assert_eq!(allowed_resources(role, "delete"), expected(&[namespaces, bindings]));
        assert_eq!(
            allowed_resources(role, "patch"),
            expected(&[
                namespaces,
                bindings,
                identities,
                ("lanyard.dev", "hostedclusteridentities/status"),
                (HYPERSHIFT, "hostedclusters"),
                (HYPERSHIFT, "hostedclusters/status"),
            ])
        );
        assert_eq!(allowed_resources(role, "bind"), expected(&[(rbac, "clusterroles")]));
        // Reads need no RoleBinding, and no permission is granted twice.
        for right in control_plane_permissions() {
            assert_eq!(right.verbs, WRITE, "{right:?}");
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
