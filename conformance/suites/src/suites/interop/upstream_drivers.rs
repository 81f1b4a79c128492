//! Our provider under upstream's drivers, whole lives of volumes: mounted, rotated, unmounted.

use std::sync::Arc;
use std::time::Duration;

use lanyard_clock::{Clock, SystemClock};
use libtest_mimic::{Failed, Trial};

use super::case_fixture::{InteropCaseFixture, MountedContents};
use super::{InteropSuiteFixture, failed_with_causes, trial};
use crate::azure_target::SignInMethod;
use crate::driver_processes::DriverRotation;
use crate::volume::{CsiDriverClient, TestVolume};

/// How often the drivers rotate.
const ROTATION_INTERVAL: Duration = Duration::from_secs(2);

/// How long a rotation may take.
const ROTATION_TIMEOUT: Duration = Duration::from_secs(30);

const CREDENTIAL_OBJECT: [&str; 1] = ["objectName: {component}\nobjectType: secret"];

pub(super) fn trials(stage: &Arc<InteropSuiteFixture>) -> Vec<Trial> {
    let trial = |name: &str, run: fn(&InteropSuiteFixture) -> UpstreamDriverCase<'_>| {
        let name = format!("interop::{name}_rotates_and_unmounts_volumes_of_lanyard_provider");
        trial(name, stage, async move |stage| run(stage).run_volume_lifecycle().await)
    };
    vec![
        // This version rotates by itself, from the pods and pod statuses of its node.
        trial("driver_v1_5_6", |stage| UpstreamDriverCase {
            suite: stage,
            name: "driver-1-5",
            program: &stage.programs.driver_1_5,
            republishes: false,
        }),
        // This one rotates when the kubelet publishes again.
        trial("driver_v1_6_0", |stage| UpstreamDriverCase {
            suite: stage,
            name: "driver-1-6",
            program: &stage.programs.driver_1_6,
            republishes: true,
        }),
    ]
}

/// A volume that a driver of upstream's keeps.
struct UpstreamDriverCase<'a> {
    suite: &'a InteropSuiteFixture,
    name: &'static str,
    program: &'a std::path::Path,
    republishes: bool,
}

impl UpstreamDriverCase<'_> {
    async fn run_volume_lifecycle(&self) -> Result<(), Failed> {
        let stack = self.suite.case_fixture(self.name)?;
        // Our provider answers rotations from what it read within its own interval.
        let _ours = stack.start_lanyard_node(DriverRotation::Every(ROTATION_INTERVAL)).await?;
        let (driver, _shared) = if self.republishes {
            (
                stack
                    .start_upstream_driver(self.program, DriverRotation::Every(ROTATION_INTERVAL))
                    .await?,
                None,
            )
        } else {
            let (driver, shared) = stack
                .start_upstream_driver_in_pod(
                    self.program,
                    DriverRotation::Every(ROTATION_INTERVAL),
                )
                .await?;
            (driver, Some(shared))
        };
        let mut volume = stack.create_class_and_volume(
            self.name,
            "azure",
            SignInMethod::ManagedIdentity,
            &CREDENTIAL_OBJECT,
        )?;
        stack.create_pod(&mut volume)?;
        let outcome = self.mount_rotate_and_unmount(&stack, &driver.client, &volume).await;
        volume.remove_directory();
        stack.delete_pod(&volume)?;
        outcome
    }

    async fn mount_rotate_and_unmount(
        &self,
        stack: &InteropCaseFixture<'_>,
        plugin: &CsiDriverClient,
        volume: &TestVolume,
    ) -> Result<(), Failed> {
        let first = stack.mount_and_read(plugin, volume).await?;
        self.suite.azure.rotate_component_credential().await.map_err(failed_with_causes)?;
        let clock = SystemClock::new();
        let deadline = clock.monotonic() + ROTATION_TIMEOUT;
        loop {
            clock.sleep(Duration::from_millis(500)).await;
            if self.republishes {
                plugin.publish(volume).await.map_err(failed_with_causes)?;
            }
            let now = stack.read_contents(volume)?;
            if files_and_versions_changed(&first, &now) {
                break;
            }
            if clock.monotonic() > deadline {
                return Err("the volume still holds the old version".into());
            }
        }
        stack.unmount_and_expect_empty(plugin, volume).await
    }
}

/// Both the file and what the status lists are others than before.
fn files_and_versions_changed(before: &MountedContents, now: &MountedContents) -> bool {
    before.files != now.files && before.objects != now.objects
}
