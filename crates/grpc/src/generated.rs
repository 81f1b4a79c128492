//! The code that `cargo xtask codegen` generated.

#![expect(
    unused_qualifications,
    clippy::pedantic,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::as_conversions,
    clippy::clone_on_ref_ptr,
    reason = "generated code"
)]

/// The Container Storage Interface, `csi.v1`.
pub mod csi;
/// The Kubernetes KMS API, version 1: `v1beta1`.
pub mod kms_v1beta1;
/// The Kubernetes KMS API, version 2: `v2`.
pub mod kms_v2;
/// The provider protocol of the Secrets Store CSI driver, `v1alpha1`.
pub mod provider;
/// The kubelet's plugin registration, `pluginregistration`.
pub mod registration;
