/* weir/buffer.hpp - weir/buffer.h and weir/host.h for C++17: an owner of a buffer, that
 * moves and is never copied.
 *
 * A header alone: each member is a call of the C function of its name, which tells what
 * it does. What can fail throws weir::error; then all is as the C function leaves it.
 * Another holder of the same bytes, or a copy of them, is only ever asked for by name.
 *
 *     weir::buffer x = weir::buffer::allocate(mr, stream, bytes);
 *     x.resize(2 * bytes, stream);
 *     fit(model, x.get());  // a C function that takes a weir_buffer *
 *
 * Moving neither throws nor asks the device: the one that was moved from is empty, and
 * cannot grow. Threads and streams: as weir/buffer.h says. */
#ifndef WEIR_BUFFER_HPP
#define WEIR_BUFFER_HPP

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "weir/buffer.hpp is C++17: in C, and in older C++, use weir/buffer.h"
#endif
#ifndef __cpp_exceptions
#error "weir/buffer.hpp throws: without exceptions use weir/buffer.h"
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "weir/buffer.h"
#include "weir/host.h"

namespace weir {

/* A call that failed: its status, the device's own code, and one sentence. */
class error : public std::runtime_error {
public:
    error(weir_status status, const weir_error &last)
        : std::runtime_error(last.message), status_(status), native_(last.native_code)
    {
    }

    weir_status status() const noexcept { return status_; }
    std::int32_t native_code() const noexcept { return native_; }

private:
    weir_status status_;
    std::int32_t native_;
};

/* Throws unless the call succeeded; for any of Weir's, right after it. */
inline void check(weir_status status)
{
    if (status != WEIR_OK)
        throw error(status, weir_last_error());
}

class weak_buffer;

class buffer {
public:
    /* ---- beginning and end ---- */

    buffer() noexcept = default;
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    buffer(buffer &&other) noexcept : it_(other.detach()) {}
    ~buffer() { reset(); }

    buffer &operator=(buffer &&other) noexcept
    {
        buffer moved(std::move(other));
        swap(moved);
        return *this;
    }

    [[nodiscard]] static buffer init(weir_resource *mr, weir_stream stream)
    {
        buffer out;
        check(weir_buffer_init(mr, stream, &out.it_));
        return out;
    }

    [[nodiscard]] static buffer allocate(weir_resource *mr, weir_stream stream,
                                         std::size_t bytes,
                                         std::size_t alignment = WEIR_ALIGNMENT)
    {
        buffer out;
        check(weir_buffer_allocate(mr, stream, bytes, alignment, &out.it_));
        return out;
    }

    [[nodiscard]] static buffer view(void *ptr, std::size_t bytes, weir_stream stream)
    {
        buffer out;
        check(weir_buffer_view(ptr, bytes, stream, &out.it_));
        return out;
    }

    [[nodiscard]] static buffer adopt(weir_device *device, weir_stream stream,
                                      const weir_foreign &foreign)
    {
        buffer out;
        check(weir_buffer_adopt(device, stream, &foreign, &out.it_));
        return out;
    }

    /* The same with any callable as the deleter, called once as
     * deleter(ptr, bytes, stream) and destroyed after that; the fields `deleter` and
     * `context` of `foreign` mean nothing. It must not throw. It is moved into one
     * object on the heap; if the call throws (std::bad_alloc, too) it was not called,
     * and the memory is still the caller's. */
    template <typename Deleter>
    [[nodiscard]] static buffer adopt(weir_device *device, weir_stream stream,
                                      const weir_foreign &foreign, Deleter deleter)
    {
        return adopt_with(&weir_buffer_adopt, device, stream, foreign,
                          std::move(deleter));
    }

    /* An array of the host's; the second with any callable, likewise. */
    [[nodiscard]] static buffer adopt_host(weir_device *device, weir_stream stream,
                                           const weir_host_array &array)
    {
        buffer out;
        check(weir_buffer_adopt_host(device, stream, &array, &out.it_));
        return out;
    }

    template <typename Deleter>
    [[nodiscard]] static buffer adopt_host(weir_device *device, weir_stream stream,
                                           const weir_host_array &array,
                                           Deleter deleter)
    {
        return adopt_with(&weir_buffer_adopt_host, device, stream, array,
                          std::move(deleter));
    }

    [[nodiscard]] static buffer adopt_block(weir_resource *mr, weir_stream stream,
                                            void *ptr, std::size_t bytes,
                                            std::size_t alignment = WEIR_ALIGNMENT)
    {
        buffer out;
        check(weir_buffer_adopt_block(mr, stream, ptr, bytes, alignment, &out.it_));
        return out;
    }

    /* Takes over what a C function has made, and leaves an empty one there. */
    [[nodiscard]] static buffer take(weir_buffer &from) noexcept
    {
        buffer out;
        std::swap(out.it_, from);
        return out;
    }

    /* The other way: the caller ends the C buffer, or hands it on. */
    [[nodiscard]] weir_buffer detach() noexcept
    {
        return std::exchange(it_, weir_buffer{});
    }

    /* Gives the bytes themselves to the caller: see weir_buffer_release. */
    [[nodiscard]] weir_released release()
    {
        weir_released out{};
        out.struct_size = sizeof out;
        check(weir_buffer_release(&it_, &out));
        return out;
    }

    void reset() noexcept { weir_buffer_reset(&it_); }

    void swap(buffer &other) noexcept { std::swap(it_, other.it_); }
    friend void swap(buffer &a, buffer &b) noexcept { a.swap(b); }

    /* ---- more holders, and copies ---- */

    [[nodiscard]] buffer share() const
    {
        buffer out;
        check(weir_buffer_share(&it_, &out.it_));
        return out;
    }

    [[nodiscard]] buffer slice(std::size_t offset, std::size_t bytes) const
    {
        buffer out;
        check(weir_buffer_slice(&it_, offset, bytes, &out.it_));
        return out;
    }

    [[nodiscard]] weak_buffer weaken() const;

    /* A null `mr` stands for the buffer's own resource, in both. */
    [[nodiscard]] buffer copy(weir_resource *mr, weir_stream stream)
    {
        buffer out;
        check(weir_buffer_copy(&it_, mr, stream, &out.it_));
        return out;
    }

    void own(weir_resource *mr, weir_stream stream)
    {
        check(weir_buffer_own(&it_, mr, stream));
    }

    /* ---- size ---- */

    void resize(std::size_t bytes, weir_stream stream)
    {
        check(weir_buffer_resize(&it_, bytes, stream));
    }

    void reserve(std::size_t bytes, weir_stream stream)
    {
        check(weir_buffer_reserve(&it_, bytes, stream));
    }

    void shrink(weir_stream stream) { check(weir_buffer_shrink(&it_, stream)); }

    /* ---- stream order ---- */

    void set_stream(weir_stream stream)
    {
        check(weir_buffer_set_stream(&it_, stream));
    }

    void use(weir_stream stream, weir_access access)
    {
        check(weir_buffer_use(&it_, stream, access));
    }

    void wait(weir_stream stream, weir_access access) const
    {
        check(weir_buffer_wait(&it_, stream, access));
    }

    void wait_sync(weir_access access) const
    {
        check(weir_buffer_wait_sync(&it_, access));
    }

    /* ---- the host ---- */

    weir_point to_host(weir_stream stream, std::size_t offset, std::size_t bytes,
                       void *host)
    {
        weir_point out;
        check(weir_buffer_to_host(&it_, stream, offset, bytes, host, &out));
        return out;
    }

    weir_point from_host(weir_stream stream, std::size_t offset, std::size_t bytes,
                         const void *host)
    {
        weir_point out;
        check(weir_buffer_from_host(&it_, stream, offset, bytes, host, &out));
        return out;
    }

    void to_host_sync(weir_stream stream, std::size_t offset, std::size_t bytes,
                      void *host)
    {
        check(weir_buffer_to_host_sync(&it_, stream, offset, bytes, host));
    }

    void from_host_sync(weir_stream stream, std::size_t offset, std::size_t bytes,
                        const void *host)
    {
        check(weir_buffer_from_host_sync(&it_, stream, offset, bytes, host));
    }

    /* ---- what it is ---- */

    void *data() const noexcept { return it_.data; }
    std::size_t size() const noexcept { return it_.size; }
    std::size_t capacity() const noexcept { return it_.capacity; }
    weir_stream stream() const noexcept { return it_.stream; }
    weir_resource *resource() const noexcept { return it_.resource; } /* not counted */

    [[nodiscard]] weir_buffer_properties properties() const
    {
        weir_buffer_properties out{};
        out.struct_size = sizeof out;
        check(weir_buffer_get_properties(&it_, &out));
        return out;
    }

    /* The C buffer inside, which stays this one's: for C functions that take it. They
     * may change it by the calls of weir/buffer.h, and may reset it. */
    weir_buffer *get() noexcept { return &it_; }
    const weir_buffer *get() const noexcept { return &it_; }

private:
    /* `adopt` is the C function that takes `from`, with a deleter and its context. */
    template <typename Adopt, typename From, typename Deleter>
    static buffer adopt_with(Adopt *adopt, weir_device *device, weir_stream stream,
                             From from, Deleter deleter)
    {
        static_assert(std::is_invocable_v<Deleter &, void *, std::size_t, weir_stream>,
                      "a deleter is called with ptr, bytes and stream");
        auto kept = std::make_unique<Deleter>(std::move(deleter));
        from.deleter = call_and_delete<Deleter>;
        from.context = kept.get();
        buffer out;
        check(adopt(device, stream, &from, &out.it_));
        (void)kept.release(); /* the storage has it */
        return out;
    }

    template <typename Deleter>
    static void call_and_delete(void *context, void *ptr, std::size_t bytes,
                                weir_stream stream) noexcept
    {
        std::unique_ptr<Deleter> deleter(static_cast<Deleter *>(context));
        (*deleter)(ptr, bytes, stream);
    }

    weir_buffer it_{};
};

/* Knows a buffer's bytes without keeping them: weir_weak_buffer. */
class weak_buffer {
public:
    weak_buffer() noexcept = default;
    explicit weak_buffer(const buffer &from)
    {
        check(weir_buffer_weaken(from.get(), &it_));
    }
    weak_buffer(const weak_buffer &) = delete;
    weak_buffer &operator=(const weak_buffer &) = delete;
    weak_buffer(weak_buffer &&other) noexcept
        : it_(std::exchange(other.it_, weir_weak_buffer{}))
    {
    }
    ~weak_buffer() { reset(); }

    weak_buffer &operator=(weak_buffer &&other) noexcept
    {
        weak_buffer moved(std::move(other));
        std::swap(it_, moved.it_);
        return *this;
    }

    /* Another holder of the bytes; nothing if they are gone. */
    [[nodiscard]] std::optional<buffer> upgrade() const
    {
        buffer out;
        weir_status status = weir_weak_buffer_upgrade(&it_, out.get());
        if (status == WEIR_NOT_FOUND)
            return std::nullopt;
        check(status);
        return out;
    }

    void reset() noexcept { weir_weak_buffer_reset(&it_); }

private:
    weir_weak_buffer it_{};
};

inline weak_buffer buffer::weaken() const
{
    return weak_buffer(*this);
}

} // namespace weir

#endif
