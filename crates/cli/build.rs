//! With the feature `persistence`, compiled kernels are kept on disk under the program's build id: there must be one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-link-arg-bins=-Wl,--build-id=sha1");
    }
}
