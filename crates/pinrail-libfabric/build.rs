//! Tells the crate whether the installed headers know dma-buf registration (libfabric 1.20).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(fi_mr_dmabuf)");
    // Where it is missing, libfabric-sys has already failed with the reason.
    if pkg_config::Config::new().cargo_metadata(false).atleast_version("1.20").probe("libfabric").is_ok() {
        println!("cargo::rustc-cfg=fi_mr_dmabuf");
    }
}
