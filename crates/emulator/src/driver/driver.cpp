// A stand-in for AMD's driver, libamdhip64.so, as far as CubeCL's HIP runtime calls it: memory is the process's own,
// everything is done at once, and a launch is handed to the function that `stand_in_launch_by` was given.
// STAND_IN_ARCH names the architecture of its one device, and STAND_IN_WAVE the lanes of its waves.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

typedef struct { uint64_t address, size; } Allocation;
typedef int (*Launch)(const void *image, size_t size, const unsigned *grid, const unsigned *block, unsigned shared,
                      void **arguments, const Allocation *allocations, size_t count);

static std::mutex guard;
static std::map<uint64_t, uint64_t> allocations;
static Launch launch;

static int allocate(void **pointer, size_t size) {
    std::lock_guard<std::mutex> held(guard);
    size = (size + 255) / 256 * 256 + 256;
    *pointer = aligned_alloc(256, size);
    // What is read before it is written shows.
    memset(*pointer, 0xA5, size);
    allocations[(uint64_t)*pointer] = size;
    return *pointer ? 0 : 2;
}

static int release(void *pointer) {
    std::lock_guard<std::mutex> held(guard);
    allocations.erase((uint64_t)pointer);
    free(pointer);
    return 0;
}

static int copy(void *to, const void *from, size_t size) {
    memmove(to, from, size);
    return 0;
}

// A handle that is never looked into.
static int handle(void **to) {
    static char something;
    *to = &something;
    return 0;
}

extern "C" {
void stand_in_launch_by(Launch by) { launch = by; }

int hipGetDeviceCount(int *count) { *count = 1; return 0; }
int hipSetDevice(int) { return 0; }
int hipSetDeviceFlags(unsigned) { return 0; }
int hipDeviceGetPCIBusId(char *, int, int) { return 1; }
int hipMemGetInfo(size_t *free, size_t *total) { *free = *total = (size_t)8 << 30; return 0; }
int hipMemPoolTrimTo(void *, size_t) { return 0; }

// hipDeviceProp_tR0600: what CubeCL reads of it, at its places.
int hipGetDevicePropertiesR0600(char *properties, int) {
    memset(properties, 0, 1472);
    strcpy(properties, "a stand-in");
    auto number = [&](int at, int value) { memcpy(properties + at, &value, sizeof value); };
    auto size = [&](int at, size_t value) { memcpy(properties + at, &value, sizeof value); };
    size(288, (size_t)8 << 30); // totalGlobalMem
    size(296, 65536); // sharedMemPerBlock
    number(308, atoi(getenv("STAND_IN_WAVE"))); // warpSize
    number(320, 1024); // maxThreadsPerBlock
    for (int i = 0; i < 3; i++) number(324 + 4 * i, 1024); // maxThreadsDim
    number(336, 2147483647); // maxGridSize
    number(340, 65536);
    number(344, 65536);
    size(368, 256); // textureAlignment
    number(388, 4); // multiProcessorCount
    strcpy(properties + 1160, getenv("STAND_IN_ARCH")); // gcnArchName
    return 0;
}

int hipMalloc(void **pointer, size_t size) { return allocate(pointer, size); }
int hipHostMalloc(void **pointer, size_t size, unsigned) { return allocate(pointer, size); }
int hipFree(void *pointer) { return release(pointer); }
int hipFreeHost(void *pointer) { return release(pointer); }
int hipMemcpyHtoDAsync(void *to, const void *from, size_t size, void *) { return copy(to, from, size); }
int hipMemcpyDtoHAsync(void *to, const void *from, size_t size, void *) { return copy(to, from, size); }
int hipMemcpyDtoDAsync(void *to, const void *from, size_t size, void *) { return copy(to, from, size); }
int hipMemcpy2DAsync(char *to, size_t to_pitch, const char *from, size_t from_pitch, size_t width, size_t height, int, void *) {
    for (size_t row = 0; row < height; row++) copy(to + row * to_pitch, from + row * from_pitch, width);
    return 0;
}

int hipStreamCreateWithFlags(void **stream, unsigned) { return handle(stream); }
int hipStreamDestroy(void *) { return 0; }
int hipStreamSynchronize(void *) { return 0; }
int hipStreamWaitEvent(void *, void *, unsigned) { return 0; }
int hipEventCreateWithFlags(void **event, unsigned) { return handle(event); }
int hipEventRecord(void *, void *) { return 0; }
int hipEventSynchronize(void *) { return 0; }
int hipEventDestroy(void *) { return 0; }
int hipEventElapsedTime(float *milliseconds, void *, void *) { *milliseconds = 0; return 0; }
// hipErrorNotSupported: there are no graphs.
int hipStreamBeginCapture(void *, int) { return 801; }
int hipStreamEndCapture(void *, void **) { return 801; }

int hipModuleLoadData(void **module, const void *image) {
    // An ELF file ends with its table of sections.
    auto bytes = static_cast<const unsigned char *>(image);
    uint64_t table;
    uint16_t size, count;
    memcpy(&table, bytes + 40, 8);
    memcpy(&size, bytes + 58, 2);
    memcpy(&count, bytes + 60, 2);
    *module = new std::vector<unsigned char>(bytes, bytes + table + size * count);
    return 0;
}
// A module has one kernel.
int hipModuleGetFunction(void **function, void *module, const char *) { *function = module; return 0; }
int hipModuleLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, void *, void **arguments, void **) {
    std::vector<Allocation> all;
    {
        std::lock_guard<std::mutex> held(guard);
        for (auto &entry : allocations) all.push_back({entry.first, entry.second});
    }
    auto image = static_cast<std::vector<unsigned char> *>(function);
    unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
    return launch ? launch(image->data(), image->size(), grid, block, shared, arguments, all.data(), all.size()) : 801;
}
}
