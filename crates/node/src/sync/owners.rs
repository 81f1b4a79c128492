//! Owner references of Secrets. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use lanyard_api::SecretProviderClassPodStatus;

use super::partial_pod::PartialPod;

/// Returns the desired owners of the Secrets of a volume: the owners of the pod, so that the Secrets live as
/// long as its ReplicaSet; the pod status if the pod has no owner.
///
/// None of them is marked as the controller: an object has at most one controller, and several pods share a
/// Secret.
pub(super) fn desired_owners(
    pod: &PartialPod,
    status: &SecretProviderClassPodStatus,
) -> Vec<OwnerReference> {
    let plain = |owner: &OwnerReference| OwnerReference {
        api_version: owner.api_version.clone(),
        kind: owner.kind.clone(),
        name: owner.name.clone(),
        uid: owner.uid.clone(),
        ..OwnerReference::default()
    };
    let owners: Vec<_> = pod.metadata.owner_references.iter().flatten().map(plain).collect();
    if !owners.is_empty() {
        return owners;
    }
    let (name, uid) = (status.metadata.name.clone(), status.metadata.uid.clone());
    let owner = name.zip(uid).map(|(name, uid)| OwnerReference {
        api_version: SecretProviderClassPodStatus::API_VERSION.to_owned(),
        kind: SecretProviderClassPodStatus::KIND.to_owned(),
        name,
        uid,
        ..OwnerReference::default()
    });
    owner.into_iter().collect()
}

/// Returns the missing owner references. Other owners of the Secret are left untouched.
pub(super) fn missing_owners(
    existing: &[OwnerReference],
    desired: &[OwnerReference],
) -> Vec<OwnerReference> {
    let is_there = |owner: &&OwnerReference| existing.iter().any(|it| it.uid == owner.uid);
    desired.iter().filter(|owner| !is_there(owner)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status() -> SecretProviderClassPodStatus {
        serde_json::from_value(json!({"metadata": {"name": "p-n-c", "uid": "s"}})).unwrap()
    }

    fn pod(owners: serde_json::Value) -> PartialPod {
        serde_json::from_value(json!({"metadata": {"ownerReferences": owners}})).unwrap()
    }

    #[test]
    fn the_owners_of_the_pod_own_its_secrets_but_do_not_control_them() {
        let owners = json!([{
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1",
            "controller": true, "blockOwnerDeletion": true,
        }]);
        let owners = desired_owners(&pod(owners), &status());
        assert_eq!(
            serde_json::to_value(owners).unwrap(),
            json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "1"}])
        );
    }

    #[test]
    fn secrets_of_a_pod_without_owner_are_owned_by_its_status() {
        let owners = desired_owners(&pod(json!(null)), &status());
        assert_eq!(
            serde_json::to_value(owners).unwrap(),
            json!([{
                "apiVersion": "secrets-store.csi.x-k8s.io/v1",
                "kind": "SecretProviderClassPodStatus", "name": "p-n-c", "uid": "s",
            }])
        );
    }

    #[test]
    fn existing_owners_are_not_added_again() {
        let owner = |uid: &str| OwnerReference { uid: uid.to_owned(), ..OwnerReference::default() };
        let existing = [owner("foreign"), owner("1")];
        assert_eq!(missing_owners(&existing, &[owner("1"), owner("2")]), [owner("2")]);
        assert_eq!(missing_owners(&existing, &[owner("1")]), []);
    }
}
