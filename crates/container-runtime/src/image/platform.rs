//! Selects the manifest of an image index for this platform.

use super::manifest::Descriptor;

/// What this machine runs, in the words of image indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    pub architecture: &'static str,
    /// Variants that run here, the best first. An empty one is a manifest that names none.
    pub variants: Vec<&'static str>,
}

impl Platform {
    pub(crate) fn of_this_machine() -> Platform {
        match std::env::consts::ARCH {
            "x86_64" => Platform { architecture: "amd64", variants: amd64_variants(amd64_level()) },
            "aarch64" => Platform { architecture: "arm64", variants: vec!["v8", ""] },
            "arm" => Platform { architecture: "arm", variants: vec!["v7", "", "v6", "v5"] },
            "powerpc64" => Platform { architecture: "ppc64le", variants: vec![""] },
            other => Platform { architecture: other, variants: vec![""] },
        }
    }

    /// The best manifest of an index: the first of those whose variant suits best.
    pub fn choose<'a>(&self, manifests: &'a [Descriptor]) -> Option<&'a Descriptor> {
        self.variants.iter().find_map(|variant| {
            manifests.iter().find(|descriptor| match &descriptor.platform {
                Some(platform) => {
                    platform.os == "linux"
                        && platform.architecture == self.architecture
                        && platform.variant.as_deref().unwrap_or_default() == *variant
                }
                None => false,
            })
        })
    }

    /// Whether an image whose configuration says this runs here. Old images say nothing and are given a try.
    pub fn runs(&self, os: &str, architecture: &str) -> bool {
        (os.is_empty() || os == "linux") && (architecture.is_empty() || architecture == self.architecture)
    }
}

fn amd64_variants(level: u32) -> Vec<&'static str> {
    const LEVELS: [&str; 3] = ["v4", "v3", "v2"];
    let above = LEVELS[(4 - level.clamp(1, 4)) as usize..].iter().copied();
    above.chain(["", "v1"]).collect()
}

#[cfg(target_arch = "x86_64")]
fn amd64_level() -> u32 {
    use std::arch::is_x86_feature_detected as has;
    let v2 = has!("sse4.2") && has!("ssse3") && has!("popcnt") && has!("cmpxchg16b");
    let v3 = v2
        && has!("avx2")
        && has!("bmi1")
        && has!("bmi2")
        && has!("f16c")
        && has!("fma")
        && has!("lzcnt")
        && has!("movbe");
    let v4 = v3 && has!("avx512f") && has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
    1 + u32::from(v2) + u32::from(v3) + u32::from(v4)
}

#[cfg(not(target_arch = "x86_64"))]
fn amd64_level() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use super::super::manifest::DescriptorPlatform;
    use super::*;

    fn descriptor(os: &str, architecture: &str, variant: Option<&str>) -> Descriptor {
        let platform = DescriptorPlatform {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: variant.map(str::to_owned),
        };
        Descriptor { platform: Some(platform), ..Default::default() }
    }

    #[test]
    fn the_best_variant_that_runs_here_is_chosen() {
        let platform = Platform { architecture: "amd64", variants: amd64_variants(3) };
        let index = [
            descriptor("windows", "amd64", None),
            descriptor("unknown", "unknown", None),
            descriptor("linux", "arm64", Some("v8")),
            descriptor("linux", "amd64", None),
            descriptor("linux", "amd64", Some("v2")),
            descriptor("linux", "amd64", Some("v4")),
        ];
        assert_eq!(platform.choose(&index), Some(&index[4]));
        assert_eq!(platform.choose(&index[..4]), Some(&index[3]));
        assert_eq!(platform.choose(&index[..3]), None);
        assert_eq!(amd64_variants(1), ["", "v1"]);
        assert_eq!(amd64_variants(4), ["v4", "v3", "v2", "", "v1"]);
    }
}
