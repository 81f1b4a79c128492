//! Renders the HostedCluster.

use lanyard_api::HostedCluster;
use lanyard_vocabulary::{Component, ObjectEncoding, SubscriptionId};
use serde_json::{Map, Value, json};

use super::INFRA_LABEL;
use super::choices::{EndpointAccess, OAuthPublishing};
use super::parameters::{
    CompleteIdentities, HostedClusterParameters, KmsIdentity, SecretEncryption,
};
use super::secrets::{
    ENCRYPTION_KEY_SUFFIX, PULL_SECRET_SUFFIX, SIGNING_KEY_SUFFIX, SSH_KEY_SUFFIX,
};
use crate::identity_files::{ControlPlaneIdentities, DataPlaneIdentities, WorkloadIdentities};

/// The size of each etcd volume, HyperShift's default.
const ETCD_VOLUME_SIZE: &str = "8Gi";

impl HostedClusterParameters {
    pub(super) fn hosted_cluster(&self, has_ssh_key: bool) -> Value {
        let options = &self.options;
        let mut labels = options.labels.clone();
        labels.insert(INFRA_LABEL.to_owned(), self.infra.infra_id.to_string());
        let mut metadata = json!({
            "name": options.name.as_str(),
            "namespace": options.namespace.as_str(),
            "labels": labels,
        });
        if !options.annotations.is_empty() {
            metadata["annotations"] = json!(options.annotations);
        }
        json!({
            "apiVersion": HostedCluster::API_VERSION,
            "kind": HostedCluster::KIND,
            "metadata": metadata,
            "spec": self.spec(has_ssh_key),
        })
    }

    fn spec(&self, has_ssh_key: bool) -> Value {
        let (options, infra) = (&self.options, &self.infra);
        let object_name = |suffix: &str| format!("{}{suffix}", options.name);
        let ranges = |ranges: &[super::IpRange]| -> Vec<Value> {
            ranges.iter().map(|range| json!({ "cidr": range.as_str() })).collect()
        };
        let mut spec = json!({
            "controllerAvailabilityPolicy": options.control_plane_availability.as_str(),
            "dns": {
                "baseDomain": infra.base_domain.as_str(),
                "publicZoneID": infra.public_zone.as_str(),
                "privateZoneID": infra.private_zone.as_str(),
            },
            "etcd": self.etcd(),
            "fips": options.fips,
            "infraID": infra.infra_id.as_str(),
            "networking": {
                "networkType": options.network_type.as_str(),
                "clusterNetwork": ranges(&options.cluster_ranges),
                "serviceNetwork": ranges(&options.service_ranges),
            },
            "olmCatalogPlacement": "management",
            "platform": { "type": "Azure", "azure": self.platform() },
            "pullSecret": { "name": object_name(PULL_SECRET_SUFFIX) },
            "release": { "image": options.release_image },
            "secretEncryption": self.secret_encryption(),
            "services": self.services(),
            // HyperShift's HostedControlPlane requires the field, also without a key.
            "sshKey": {},
        });
        if has_ssh_key {
            spec["sshKey"] = json!({ "name": object_name(SSH_KEY_SUFFIX) });
        }
        if let Some(policy) = options.infra_availability {
            spec["infrastructureAvailabilityPolicy"] = policy.as_str().into();
        }
        if let Some(issuer) = &options.issuer_url {
            spec["issuerURL"] = issuer.as_str().into();
        }
        if options.has_signing_key {
            spec["serviceAccountSigningKey"] = json!({ "name": object_name(SIGNING_KEY_SUFFIX) });
        }
        if !options.disabled_capabilities.is_empty() {
            spec["capabilities"] = json!({ "disabled": options.disabled_capabilities });
        }
        spec
    }

    fn etcd(&self) -> Value {
        let mut volume = json!({ "size": ETCD_VOLUME_SIZE });
        if let Some(class) = &self.options.etcd_storage_class {
            volume["storageClassName"] = class.as_str().into();
        }
        json!({
            "managementType": "Managed",
            "managed": {
                "storage": { "type": "PersistentVolume", "persistentVolume": volume },
            },
        })
    }

    fn platform(&self) -> Value {
        let (options, account, infra) = (&self.options, &self.account, &self.infra);
        let mut platform = json!({
            "azureAuthenticationConfig": self.authentication(),
            "cloud": options.cloud.name(),
            "location": infra.location,
            "resourceGroup": infra.resource_group,
            "securityGroupID": infra.security_group.as_str(),
            "subnetID": infra.subnet.as_str(),
            "subscriptionID": account.subscription.as_str(),
            "tenantID": account.tenant.as_str(),
            "vnetID": infra.vnet.as_str(),
        });
        if let Some(link) = &self.private_link {
            let mut private_link = json!({ "natSubnetID": link.nat_subnet.as_str() });
            if !link.additional_subscriptions.is_empty() {
                let subscriptions: Vec<_> =
                    link.additional_subscriptions.iter().map(SubscriptionId::as_str).collect();
                private_link["additionalAllowedSubscriptions"] = json!(subscriptions);
            }
            platform["private"] = json!({ "type": "PrivateLink", "privateLink": private_link });
            platform["topology"] = options.endpoint_access.as_str().into();
        }
        platform
    }

    fn authentication(&self) -> Value {
        match &self.identities {
            CompleteIdentities::Managed { control_plane, data_plane } => json!({
                "azureAuthenticationConfigType": "ManagedIdentities",
                "managedIdentities": {
                    "controlPlane": control_plane_json(control_plane),
                    "dataPlane": data_plane_json(data_plane),
                },
            }),
            CompleteIdentities::Workload(identities) => json!({
                "azureAuthenticationConfigType": "WorkloadIdentities",
                "workloadIdentities": workload_json(identities),
            }),
        }
    }

    fn secret_encryption(&self) -> Value {
        match &self.encryption {
            SecretEncryption::GeneratedKey => {
                let name = format!("{}{ENCRYPTION_KEY_SUFFIX}", self.options.name);
                json!({ "type": "aescbc", "aescbc": { "activeKey": { "name": name } } })
            }
            SecretEncryption::Vault { key, identity } => {
                let mut azure = json!({
                    "activeKey": {
                        "keyVaultName": key.vault.as_str(),
                        "keyName": key.key.as_str(),
                        "keyVersion": key.version.as_str(),
                    },
                });
                match identity {
                    KmsIdentity::Managed(secret) => {
                        azure["kms"] = json!({
                            "credentialsSecretName": secret.as_str(),
                            "objectEncoding": ObjectEncoding::Utf8.name(),
                        });
                    }
                    KmsIdentity::Workload(client) => {
                        azure["workloadIdentity"] = json!({ "clientID": client.to_string() });
                    }
                }
                if key.is_managed_hsm {
                    azure["keyVaultType"] = "ManagedHSM".into();
                }
                json!({ "type": "kms", "kms": { "provider": "Azure", "azure": azure } })
            }
        }
    }

    /// How the services are published. The API server of a private cluster, or with external DNS, has a route
    /// instead of a load balancer.
    fn services(&self) -> Value {
        let options = &self.options;
        let host_name = |prefix: &str| {
            let domain = options.external_dns_domain.as_ref()?;
            Some(format!("{prefix}-{}.{domain}", options.name))
        };
        let has_route = options.external_dns_domain.is_some()
            || options.endpoint_access != EndpointAccess::Public;
        let strategy = |is_route: bool, prefix: &str| {
            let (name, field) =
                if is_route { ("Route", "route") } else { ("LoadBalancer", "loadBalancer") };
            match host_name(prefix) {
                Some(host) => json!({ "type": name, field: { "hostname": host } }),
                None if is_route => json!({ "type": name, field: {} }),
                None => json!({ "type": name }),
            }
        };
        let oauth_route = options.oauth_publishing == OAuthPublishing::Route;
        let services = [
            ("APIServer", strategy(has_route, "api")),
            ("Ignition", strategy(true, "ignition")),
            ("Konnectivity", strategy(true, "konnectivity")),
            ("OAuthServer", strategy(oauth_route, "oauth")),
        ];
        services
            .into_iter()
            .map(|(service, strategy)| {
                json!({ "service": service, "servicePublishingStrategy": strategy })
            })
            .collect()
    }
}

fn control_plane_json(identities: &ControlPlaneIdentities) -> Value {
    let mut document = Map::new();
    for (component, identity) in &identities.identities {
        // HyperShift writes `utf-8` whatever the file says; the credentials could not be read then.
        let identity = json!({
            "clientID": identity.client_id.to_string(),
            "credentialsSecretName": identity.credentials_secret_name.as_str(),
            "objectEncoding": identity.object_encoding.name(),
        });
        document.insert(component.name().to_owned(), identity);
    }
    let vault = json!({
        "name": identities.vault.name.as_str(),
        "tenantID": identities.vault.tenant.as_str(),
    });
    document.insert("managedIdentitiesKeyVault".to_owned(), vault);
    document.into()
}

fn data_plane_json(identities: &DataPlaneIdentities) -> Value {
    let ids = identities.0.iter();
    ids.map(|(identity, id)| (identity.field().to_owned(), Value::from(id.to_string()))).collect()
}

fn workload_json(identities: &WorkloadIdentities) -> Value {
    let ids = identities.0.iter().filter(|(component, _)| **component != Component::Kms);
    ids.map(|(component, id)| (component.name().to_owned(), json!({ "clientID": id.to_string() })))
        .collect()
}
