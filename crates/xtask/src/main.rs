mod lld;
mod llvm;
mod shell;

fn main() {
    let r = llvm::check_compiler().and_then(|()| llvm::ensure()).and_then(|d| lld::ensure(&d));
    println!("{r:?}");
}
