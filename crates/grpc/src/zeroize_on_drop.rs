//! Zeroizes messages that carry secrets when they are dropped.
//!
//! The buffers of the transport are not zeroized: decoded secrets are removed from memory, but
//! copies in those buffers may remain until they are reused.

use zeroize::Zeroize;

use crate::csi::NodePublishVolumeRequest;
use crate::provider::{File, MountRequest};
use crate::{kms_v1beta1, kms_v2};

impl Drop for NodePublishVolumeRequest {
    fn drop(&mut self) {
        self.secrets.values_mut().for_each(Zeroize::zeroize);
        self.volume_context.values_mut().for_each(Zeroize::zeroize);
    }
}

impl Drop for MountRequest {
    fn drop(&mut self) {
        self.attributes.zeroize();
        self.secrets.zeroize();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.contents.zeroize();
    }
}

impl Drop for kms_v2::EncryptRequest {
    fn drop(&mut self) {
        self.plaintext.zeroize();
    }
}

impl Drop for kms_v2::DecryptResponse {
    fn drop(&mut self) {
        self.plaintext.zeroize();
    }
}

impl Drop for kms_v1beta1::EncryptRequest {
    fn drop(&mut self) {
        self.plain.zeroize();
    }
}

impl Drop for kms_v1beta1::DecryptResponse {
    fn drop(&mut self) {
        self.plain.zeroize();
    }
}
