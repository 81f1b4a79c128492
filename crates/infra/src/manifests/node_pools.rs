//! Renders the NodePools.

use lanyard_api::HostedCluster;
use serde_json::{Value, json};

use super::INFRA_LABEL;
use super::choices::{AvailabilityZone, DiagnosticsStorage, NodeArchitecture};
use super::parameters::{HostedClusterParameters, NodePoolZones};

impl HostedClusterParameters {
    pub(super) fn node_pools(&self) -> Vec<Value> {
        if self.options.node_pools.replicas < 0 {
            return Vec::new();
        }
        let name = self.options.name.as_str();
        match &self.zones {
            NodePoolZones::Single(zone) => vec![self.node_pool(name, *zone)],
            NodePoolZones::Each(zones) => zones
                .iter()
                .map(|zone| self.node_pool(&format!("{name}-{zone}"), Some(*zone)))
                .collect(),
        }
    }

    fn node_pool(&self, name: &str, zone: Option<AvailabilityZone>) -> Value {
        let (options, pools) = (&self.options, &self.options.node_pools);
        json!({
            "apiVersion": HostedCluster::API_VERSION,
            "kind": "NodePool",
            "metadata": {
                "name": name,
                "namespace": options.namespace.as_str(),
                "labels": { INFRA_LABEL: self.infra.infra_id.as_str() },
            },
            "spec": {
                "arch": pools.architecture.as_str(),
                "clusterName": options.name.as_str(),
                "management": {
                    "autoRepair": pools.auto_repair,
                    "upgradeType": pools.upgrade_type.as_str(),
                },
                "nodeDrainTimeout": "0s",
                "nodeVolumeDetachTimeout": "0s",
                "platform": { "type": "Azure", "azure": self.machines(zone) },
                "release": { "image": options.release_image },
                "replicas": pools.replicas,
            },
        })
    }

    fn machines(&self, zone: Option<AvailabilityZone>) -> Value {
        let pools = &self.options.node_pools;
        let mut disk = json!({
            "diskStorageAccountType": pools.disk_storage,
            "sizeGiB": pools.disk_size,
        });
        if let Some(set) = &pools.disk_encryption_set {
            disk["encryptionSetID"] = set.as_str().into();
        }
        if pools.ephemeral_disk {
            disk["persistence"] = "Ephemeral".into();
        }
        let default_size = match pools.architecture {
            NodeArchitecture::Amd64 => "Standard_D4s_v5",
            NodeArchitecture::Arm64 => "Standard_D4ps_v5",
        };
        let subnet = pools.subnet.as_ref().unwrap_or(&self.infra.subnet);
        let mut machines = json!({
            "image": self.image(),
            "osDisk": disk,
            "subnetID": subnet.as_str(),
            "vmSize": pools.instance_type.as_deref().unwrap_or(default_size),
        });
        if let Some(zone) = zone {
            machines["availabilityZone"] = zone.as_str().into();
        }
        if let Some(encryption) = pools.host_encryption {
            machines["encryptionAtHost"] = encryption.as_str().into();
        }
        if let Some(storage) = pools.diagnostics.storage {
            machines["diagnostics"] = json!({ "storageAccountType": storage.as_str() });
            if storage == DiagnosticsStorage::UserManaged {
                let uri = json!({ "storageAccountURI": pools.diagnostics.account_uri });
                machines["diagnostics"]["userManaged"] = uri;
            }
        }
        machines
    }

    /// The image of the flags, else the uploaded image, else the marketplace image that belongs to the release.
    fn image(&self) -> Value {
        let generation = self.options.node_pools.image_generation;
        match (&self.image, &self.infra.boot_image) {
            (Some(image), _) => {
                let mut marketplace = json!({
                    "publisher": image.publisher,
                    "offer": image.offer,
                    "sku": image.sku,
                    "version": image.version,
                });
                if let Some(generation) = generation {
                    marketplace["imageGeneration"] = generation.as_str().into();
                }
                json!({ "type": "AzureMarketplace", "azureMarketplace": marketplace })
            }
            (None, Some(id)) => json!({ "type": "ImageID", "imageID": id }),
            (None, None) => match generation {
                Some(generation) => json!({
                    "type": "AzureMarketplace",
                    "azureMarketplace": { "imageGeneration": generation.as_str() },
                }),
                None => json!({ "type": "AzureMarketplace" }),
            },
        }
    }
}
