//! Compiled kernels are kept on disk, so that a command's second run need not compile them.

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig, cache::CacheConfig};

/// Set to 0, the environment variable that turns it off.
pub const SWITCH: &str = "MLA_PROLOGUE_CACHE";

/// Turns CubeCL's cache of compiled kernels on, in the user's cache folder. They are kept for this build of the
/// program and the device's architecture. To be called before any device is opened.
pub fn keep() {
    if std::env::var_os(SWITCH).is_some_and(|value| value == "0") {
        return;
    }
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = true;
    config.environment.path = CacheConfig::Global;
    // A configuration that was set before stays.
    let _ = CubeClRuntimeConfig::try_set(config);
}
