//! The operator's account at the API server, and its permissions.

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use lanyard_operator::permissions::{
    ApiPermission, CONTROL_PLANE_CLUSTER_ROLE, cluster_permissions, control_plane_permissions,
    namespace_permissions,
};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use crate::waiting::eventually;

/// The operator's ServiceAccount in the golden files of its chart: namespace and name.
pub(super) const OPERATOR_ACCOUNT: &str = "kube-system/conformance-operator-lanyard-operator";

/// The user name of that ServiceAccount. The user has the permissions of the chart, and its admission policies
/// apply to the user.
pub(crate) const OPERATOR_USER: &str =
    "system:serviceaccount:kube-system:conformance-operator-lanyard-operator";

/// The name of the roles that grant the permissions, and of their bindings.
pub(super) const OPERATOR_ROLE: &str = "lanyard-operator";

/// Grants the operator exactly the permissions of its role, except those in the namespaces of control planes,
/// for which it only gets the ClusterRole that it binds itself.
pub(super) async fn grant_role_permissions(
    client: &Client,
    namespace: &str,
    role: lanyard_operator::OperatorRole,
) -> Result<(), Failed> {
    let cluster_roles = Api::<ClusterRole>::all(client.clone());
    apply_object(&cluster_roles, OPERATOR_ROLE, role_rules(cluster_permissions(role))).await?;
    let rules = role_rules(control_plane_permissions());
    apply_object(&cluster_roles, CONTROL_PLANE_CLUSTER_ROLE, rules).await?;
    let binding = role_binding("ClusterRole");
    apply_object(&Api::<ClusterRoleBinding>::all(client.clone()), OPERATOR_ROLE, binding).await?;
    let roles = Api::<Role>::namespaced(client.clone(), namespace);
    apply_object(&roles, OPERATOR_ROLE, role_rules(namespace_permissions())).await?;
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    apply_object(&bindings, OPERATOR_ROLE, role_binding("Role")).await?;
    wait_until_granted(client, namespace, cluster_permissions(role).chain(namespace_permissions()))
        .await
}

/// The rules of a role with these permissions.
pub(super) fn role_rules(permissions: impl Iterator<Item = &'static ApiPermission>) -> Value {
    let rule = |permission: &ApiPermission| {
        json!({
            "apiGroups": [permission.group],
            "resources": [permission.resource],
            "verbs": permission.verbs,
            "resourceNames": permission.names,
        })
    };
    json!({"rules": permissions.map(rule).collect::<Vec<_>>()})
}

fn role_binding(kind: &str) -> Value {
    json!({
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": OPERATOR_ROLE},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": OPERATOR_USER}],
    })
}

async fn apply_object<T>(objects: &Api<T>, name: &str, mut object: Value) -> Result<(), Failed>
where
    T: kube::Resource<DynamicType = ()> + serde::de::DeserializeOwned + Clone + std::fmt::Debug,
{
    object["apiVersion"] = json!(T::api_version(&()));
    object["kind"] = json!(T::kind(&()));
    object["metadata"] = json!({"name": name});
    let parameters = PatchParams::apply("trial").force();
    objects.patch(name, &parameters, &Patch::Apply(object)).await?;
    Ok(())
}

/// Waits until the authorizer, which learns of roles through a watch, has applied these permissions.
pub(super) async fn wait_until_granted(
    client: &Client,
    namespace: &str,
    permissions: impl Iterator<Item = &'static ApiPermission>,
) -> Result<(), Failed> {
    let reviews = Api::<SubjectAccessReview>::all(client.clone());
    for permission in permissions {
        let (resource, subresource) =
            permission.resource.split_once('/').unwrap_or((permission.resource, ""));
        let review = json!({"spec": {
            "user": OPERATOR_USER,
            "resourceAttributes": {
                "namespace": namespace,
                "group": permission.group,
                "resource": resource,
                "subresource": subresource,
                "name": permission.names.first(),
                "verb": permission.verbs.first(),
            },
        }});
        let review: SubjectAccessReview = serde_json::from_value(review)?;
        eventually(&format!("{permission:?} is in force"), async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            Ok(answer.status.is_some_and(|status| status.allowed))
        })
        .await?;
    }
    Ok(())
}
