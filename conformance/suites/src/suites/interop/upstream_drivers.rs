//! Trials of lanyard's provider with upstream's drivers: volumes are mounted, rotated and unmounted.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};

use super::case_fixture::{InteropCaseFixture, MountedContents};
use super::{InteropSuiteFixture, failed_with_causes, trial};
use crate::driver_processes::DriverRotation;
use crate::sign_in_method::SignInMethod;
use crate::volume::{CsiDriverClient, TestVolume};

/// The rotation interval of the drivers.
const ROTATION_INTERVAL: Duration = Duration::from_secs(2);

/// How long a rotation may take.
const ROTATION_TIMEOUT: Duration = Duration::from_secs(30);

const CREDENTIAL_OBJECT: [&str; 1] = ["objectName: {component}\nobjectType: secret"];

pub(super) fn trials(fixture: &Arc<InteropSuiteFixture>) -> Vec<Trial> {
    let trial = |name: &str, run: fn(&InteropSuiteFixture) -> UpstreamDriverCase<'_>| {
        let name = format!("interop::{name}_rotates_and_unmounts_volumes_of_lanyard_provider");
        trial(name, fixture, async move |fixture| run(fixture).run_volume_lifecycle().await)
    };
    vec![
        // This version rotates volumes itself, from the pods and pod statuses of its node.
        trial("driver_v1_5_6", |fixture| UpstreamDriverCase {
            suite: fixture,
            name: "driver-1-5",
            program: &fixture.programs.driver_1_5,
            republishes: false,
        }),
        // This version rotates a volume when the kubelet republishes it.
        trial("driver_v1_6_0", |fixture| UpstreamDriverCase {
            suite: fixture,
            name: "driver-1-6",
            program: &fixture.programs.driver_1_6,
            republishes: true,
        }),
    ]
}

/// A case with one of upstream's drivers.
struct UpstreamDriverCase<'a> {
    suite: &'a InteropSuiteFixture,
    name: &'static str,
    program: &'a std::path::Path,
    republishes: bool,
}

impl UpstreamDriverCase<'_> {
    async fn run_volume_lifecycle(&self) -> Result<(), Failed> {
        let case_fixture = self.suite.case_fixture(self.name)?;
        // Within its own rotation interval, lanyard's provider answers from its cache.
        let _ours =
            case_fixture.start_lanyard_node(DriverRotation::Every(ROTATION_INTERVAL)).await?;
        let (driver, _shared) = if self.republishes {
            (
                case_fixture
                    .start_upstream_driver(self.program, DriverRotation::Every(ROTATION_INTERVAL))
                    .await?,
                None,
            )
        } else {
            let (driver, shared) = case_fixture
                .start_upstream_driver_in_pod(
                    self.program,
                    DriverRotation::Every(ROTATION_INTERVAL),
                )
                .await?;
            (driver, Some(shared))
        };
        let mut volume = case_fixture.create_class_and_volume(
            self.name,
            "azure",
            SignInMethod::ManagedIdentity,
            &CREDENTIAL_OBJECT,
        )?;
        case_fixture.create_pod(&mut volume)?;
        let outcome = self.mount_rotate_and_unmount(&case_fixture, &driver.client, &volume).await;
        volume.remove_directory();
        case_fixture.delete_pod(&volume)?;
        outcome
    }

    async fn mount_rotate_and_unmount(
        &self,
        case_fixture: &InteropCaseFixture<'_>,
        plugin: &CsiDriverClient,
        volume: &TestVolume,
    ) -> Result<(), Failed> {
        let first = case_fixture.mount_and_read(plugin, volume).await?;
        self.suite.azure.rotate_component_credential().await.map_err(failed_with_causes)?;
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + ROTATION_TIMEOUT;
        loop {
            clock.sleep(Duration::from_millis(500)).await;
            if self.republishes {
                plugin.publish(volume).await.map_err(failed_with_causes)?;
            }
            let now = case_fixture.read_contents(volume)?;
            if files_and_versions_changed(&first, &now) {
                break;
            }
            if clock.monotonic() > deadline {
                return Err("the volume still holds the old version".into());
            }
        }
        case_fixture.unmount_and_expect_empty(plugin, volume).await
    }
}

/// Whether both the files and the versions in the pod status changed.
fn files_and_versions_changed(before: &MountedContents, now: &MountedContents) -> bool {
    before.files != now.files && before.objects != now.objects
}
