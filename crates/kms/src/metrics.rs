//! The metrics of the plugin.
//!
//! The histogram has the name, labels and buckets of the other plugins. Their label `error_message`
//! contains the error text, so each new text is a new series; here it contains a fixed word.

use std::time::Duration;

use lanyard_telemetry::prometheus_client::encoding::{EncodeLabelKey, EncodeLabelValue};
use lanyard_telemetry::prometheus_client::encoding::{
    EncodeLabelSet, LabelSetEncoder, LabelValueEncoder,
};
use lanyard_telemetry::prometheus_client::metrics::family::Family;
use lanyard_telemetry::prometheus_client::metrics::histogram::Histogram;
use lanyard_telemetry::prometheus_client::registry::Registry;

/// The metrics of a plugin. Clones share their values.
#[derive(Debug, Clone)]
pub struct KmsMetrics {
    requests: Family<KmsRequestLabels, Histogram, fn() -> Histogram>,
}

/// The operation that a measurement belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MeasuredOperation {
    /// An encrypt request to the vault.
    Encrypt,
    /// A decrypt request to the vault.
    Decrypt,
    /// An encrypt call of the API server, version 1 or 2.
    GrpcEncrypt,
    /// A decrypt call of the API server, version 1 or 2.
    GrpcDecrypt,
    /// A status call of the API server, version 2.
    GrpcStatus,
    /// A version call of the API server, version 1.
    GrpcVersion,
}

impl MeasuredOperation {
    const fn name(self) -> &'static str {
        match self {
            Self::Encrypt => "encrypt",
            Self::Decrypt => "decrypt",
            Self::GrpcEncrypt => "grpc_encrypt",
            Self::GrpcDecrypt => "grpc_decrypt",
            Self::GrpcStatus => "grpc_status",
            Self::GrpcVersion => "grpc_version",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct KmsRequestLabels {
    operation: MeasuredOperation,
    error: Option<&'static str>,
}

impl EncodeLabelSet for KmsRequestLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> Result<(), std::fmt::Error> {
        let status = if self.error.is_some() { "error" } else { "success" };
        let labels = [("operation", Some(self.operation.name())), ("status", Some(status))];
        let scope = [("error_message", self.error), ("otel_scope_name", Some("keyvaultkms"))];
        for (name, value) in labels.into_iter().chain(scope) {
            let Some(value) = value else { continue };
            let mut label = encoder.encode_label();
            let mut key = label.encode_label_key()?;
            EncodeLabelKey::encode(&name, &mut key)?;
            let mut written: LabelValueEncoder<'_> = key.encode_label_value()?;
            EncodeLabelValue::encode(&value, &mut written)?;
            written.finish()?;
        }
        Ok(())
    }
}

impl Default for KmsMetrics {
    fn default() -> Self {
        Self { requests: Family::new_with_constructor(|| Histogram::new(DURATION_BUCKETS)) }
    }
}

impl KmsMetrics {
    /// Records one operation; `error` is its error label, if it failed.
    pub fn record(
        &self,
        operation: MeasuredOperation,
        took: Duration,
        error: Option<&'static str>,
    ) {
        let labels = KmsRequestLabels { operation, error };
        self.requests.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Registers the metrics.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Duration in seconds of requests to the vault and of calls by the API server";
        registry.register("kms_request", help, self.requests.clone());
    }
}

/// Eleven exponential buckets from 0.1 to 2, as in the other plugins
/// (`ExponentialBucketsRange(0.1, 2, 11)`).
const DURATION_BUCKETS: [f64; 11] = [
    0.1,
    0.134_928_284_767_356_35,
    0.182_056_420_302_608_07,
    0.245_645_605_223_158_15,
    0.331_445_401_733_998_83,
    0.447_213_595_499_958_15,
    0.603_417_633_654_516_7,
    0.814_181_063_073_809_3,
    1.098_560_543_306_118_5,
    1.482_268_898_213_896_7,
    2.0,
];

#[cfg(test)]
mod tests {
    use lanyard_telemetry::MetricsPage;

    use super::*;

    #[test]
    fn metrics_use_upstream_names_and_error_labels() {
        let metrics = KmsMetrics::default();
        metrics.record(MeasuredOperation::GrpcStatus, Duration::from_millis(150), None);
        metrics.record(MeasuredOperation::GrpcEncrypt, Duration::from_secs(3), Some("forbidden"));
        let page = MetricsPage::build(|registry| metrics.register(registry)).render();
        for line in [
            r#"kms_request_count{operation="grpc_status",status="success",otel_scope_name="keyvaultkms"} 1"#,
            r#"kms_request_bucket{le="0.1",operation="grpc_status",status="success",otel_scope_name="keyvaultkms"} 0"#,
            r#"kms_request_sum{operation="grpc_encrypt",status="error",error_message="forbidden",otel_scope_name="keyvaultkms"} 3.0"#,
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn buckets_grow_evenly() {
        let ratio = 20_f64.powf(0.1);
        for pair in DURATION_BUCKETS.windows(2) {
            assert!((pair[1] / pair[0] - ratio).abs() < 1e-9, "{pair:?}");
        }
    }
}
