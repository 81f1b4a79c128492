//! The metrics of canaries, which listen on loopback.

use std::collections::BTreeMap;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use lanyard_vocabulary::Component;
use libtest_mimic::Failed;

use super::{HostedClusterSuiteFixture, failed_with_causes};

/// The samples of one canary's metrics page, by metric name with labels.
#[derive(Debug, Clone, Default)]
pub(super) struct CanaryMetricsPage(BTreeMap<String, f64>);

impl CanaryMetricsPage {
    fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Self(samples.filter_map(sample).collect())
    }

    /// The sum of all samples of a metric.
    pub(super) fn sample_sum(&self, metric: &str) -> f64 {
        self.samples(metric).map(|(_, value)| value).sum()
    }

    /// The value of a metric's sample whose labels contain `label`.
    pub(super) fn sample_with_label(&self, metric: &str, label: &str) -> Option<f64> {
        self.samples(metric).find(|(name, _)| name.contains(label)).map(|(_, value)| value)
    }

    /// Name and labels of the first sample of a metric.
    pub(super) fn sample_labels(&self, metric: &str) -> Option<&str> {
        self.samples(metric).next().map(|(name, _)| name)
    }

    fn samples(&self, metric: &str) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().filter_map(move |(name, value)| {
            let rest = name.strip_prefix(metric)?;
            (rest.is_empty() || rest.starts_with('{')).then_some((name.as_str(), *value))
        })
    }

    /// Whether the canary is authenticated with its token.
    pub(super) fn is_authenticated(&self) -> bool {
        self.sample_sum("lanyard_canary_authenticated") > 0.5
    }
}

/// Fetches the metrics of a component's canary.
pub(super) async fn fetch_canary_metrics(
    fixture: &HostedClusterSuiteFixture,
    component: Component,
) -> Result<CanaryMetricsPage, Failed> {
    let url = format!("http://127.0.0.1:{}/metrics", fixture.ports.canary_port(component));
    // Loopback needs no proxy, so proxies of the environment are ignored.
    let client = reqwest::Client::builder().no_proxy().build().map_err(failed_with_causes)?;
    let text = client
        .get(url)
        .send()
        .await
        .map_err(failed_with_causes)?
        .text()
        .await
        .map_err(failed_with_causes)?;
    Ok(CanaryMetricsPage::parse(&text))
}

/// Waits until a condition holds for the metrics of all canaries, and returns them.
pub(super) async fn wait_for_all_canaries(
    fixture: &HostedClusterSuiteFixture,
    what: &str,
    timeout: Duration,
    condition: impl Fn(Component, &CanaryMetricsPage) -> bool,
) -> Result<BTreeMap<Component, CanaryMetricsPage>, Failed> {
    let clock = SystemClock::new();
    let deadline = clock.monotonic() + timeout;
    loop {
        let mut pages = BTreeMap::new();
        let mut missing = Vec::new();
        for component in Component::ALL {
            match fetch_canary_metrics(fixture, component).await {
                Ok(page) if condition(component, &page) => {
                    pages.insert(component, page);
                }
                Ok(page) => missing.push(format!("{component}: {page:?}")),
                Err(error) => {
                    missing.push(format!("{component}: {}", error.message().unwrap_or_default()));
                }
            }
        }
        if missing.is_empty() {
            return Ok(pages);
        }
        if clock.monotonic() > deadline {
            return Err(fixture.failure_with_logs(format!(
                "condition `{what}` does not hold for {}",
                missing.join("; ")
            )));
        }
        clock.sleep(Duration::from_millis(500)).await;
    }
}
