//! The flags with a fixed set of values, which are also the values of the API.

use std::fmt;
use std::str::FromStr;

/// A flag does not have this value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("give one of {known}")]
pub struct InvalidChoiceError {
    known: String,
}

macro_rules! choice {
    (
        $(#[$doc:meta])*
        $name:ident { $($(#[$variant_doc:meta])* $variant:ident => $text:literal,)+ }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            const ALL: &[Self] = &[$(Self::$variant,)+];

            /// The value of the flag and of the API.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl FromStr for $name {
            type Err = InvalidChoiceError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|it| it.as_str() == text).ok_or_else(|| {
                    let known: Vec<_> = Self::ALL.iter().map(|it| it.as_str()).collect();
                    InvalidChoiceError { known: known.join(", ") }
                })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.pad(self.as_str())
            }
        }
    };
}

choice! {
    /// From where the API server of the cluster is reached.
    EndpointAccess {
        /// From the internet.
        Public => "Public",
        /// From the internet, and through a private link.
        PublicAndPrivate => "PublicAndPrivate",
        /// Only through a private link.
        Private => "Private",
    }
}

impl EndpointAccess {
    /// Whether the API server has a private endpoint.
    pub fn is_private(self) -> bool {
        self != Self::Public
    }
}

choice! {
    /// How the OAuth server is published.
    OAuthPublishing {
        /// Through a route.
        Route => "Route",
        /// Through a load balancer of its own.
        LoadBalancer => "LoadBalancer",
    }
}

choice! {
    /// Whether components have replicas.
    AvailabilityPolicy {
        /// One replica.
        SingleReplica => "SingleReplica",
        /// Several replicas.
        HighlyAvailable => "HighlyAvailable",
    }
}

choice! {
    /// The network plugin of the cluster.
    NetworkType {
        /// OVN-Kubernetes.
        OvnKubernetes => "OVNKubernetes",
        /// OpenShift SDN.
        OpenShiftSdn => "OpenShiftSDN",
        /// Calico.
        Calico => "Calico",
        /// Another plugin, which the user installs.
        Other => "Other",
    }
}

choice! {
    /// The processor architecture of the nodes.
    NodeArchitecture {
        /// x86-64.
        Amd64 => "amd64",
        /// 64-bit Arm.
        Arm64 => "arm64",
    }
}

choice! {
    /// How the nodes of a NodePool are upgraded.
    NodeUpgradeType {
        /// New machines replace the old ones.
        Replace => "Replace",
        /// The machines stay.
        InPlace => "InPlace",
    }
}

choice! {
    /// The availability zone of a NodePool.
    AvailabilityZone {
        /// Zone 1.
        One => "1",
        /// Zone 2.
        Two => "2",
        /// Zone 3.
        Three => "3",
    }
}

choice! {
    /// The generation of a machine image.
    ImageGeneration {
        /// Generation 1.
        Gen1 => "Gen1",
        /// Generation 2.
        Gen2 => "Gen2",
    }
}

choice! {
    /// Where the boot diagnostics of the machines are stored.
    DiagnosticsStorage {
        /// Nowhere.
        Disabled => "Disabled",
        /// In a storage account of Azure.
        Managed => "Managed",
        /// In a storage account of the user.
        UserManaged => "UserManaged",
    }
}

choice! {
    /// Whether the hosts of the machines encrypt disks and caches.
    HostEncryption {
        /// They do.
        Enabled => "Enabled",
        /// They do not.
        Disabled => "Disabled",
    }
}
