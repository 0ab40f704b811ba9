# The tag of C++ exceptions, which every module with exceptions defines once.
	.tagtype	__cpp_exception i32
	.globl	__cpp_exception
__cpp_exception:
